// The process that keeps the namespaces of a pod alive, as the image registry.k8s.io/pause does.
//
// It ends with the first SIGINT or SIGTERM, and waits for processes that the kernel gives to it when containers share a
// PID namespace.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	received := make(chan os.Signal, 8)
	signal.Notify(received, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for {
		if next := <-received; next != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && err != syscall.EINTR {
			return
		}
	}
}
