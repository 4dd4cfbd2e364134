"""Client, reflector, informers, leader election, event recorder: the counterpart of client-go."""
