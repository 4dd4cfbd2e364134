// One program that is the whole control plane of Kubernetes: the first word says which component it is.
//
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler are the upstream packages, unchanged; linking them
// together costs one build instead of four and 120 MB instead of 400. Called under a component's name (a symbolic link) it
// is that component, so that whatever expects four programs in a folder finds them.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const etcd = "etcd"

// Constructors, not commands: each registers flags and metrics in globals that only one component may own.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	component, arguments := chosen(os.Args)
	os.Args = arguments
	if component == etcd {
		etcdmain.Main(arguments)
		return
	}
	newCommand, known := components[component]
	if !known {
		fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-controller-manager|kube-scheduler [flags]")
		os.Exit(2)
	}
	os.Exit(cli.Run(newCommand()))
}

// chosen finds the component in the program's own name or else in its first argument.
func chosen(arguments []string) (string, []string) {
	name := filepath.Base(arguments[0])
	if _, known := components[name]; known || name == etcd || len(arguments) == 1 {
		return name, arguments
	}
	return arguments[1], slices.Concat(arguments[1:2], arguments[2:])
}
