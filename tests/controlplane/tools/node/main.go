// One program with the two components of Kubernetes that run on every node: kubelet and kube-proxy.
//
// Both are the upstream packages, unchanged. The name under which the program is called, or else its first argument,
// selects the component. The control plane has a program of its own (tests/controlplane/main.go), because most levels need
// no node.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	command := commandFor(filepath.Base(os.Args[0]))
	if command == nil && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		command = commandFor(os.Args[0])
	}
	if command == nil {
		fmt.Fprintln(os.Stderr, "usage: node kubelet|kube-proxy [flags]")
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}

// commandFor constructs only the component that runs: both register flags and metrics in the same globals.
func commandFor(component string) *cobra.Command {
	switch component {
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "kube-proxy":
		return proxy.NewProxyCommand()
	default:
		return nil
	}
}
