// CoreDNS with only the plugins that Corefiles of the project's clusters name, kubeadm's included: the others would link the
// SDKs of three clouds.
//
// Directives is the order in which a request passes through the plugins; CoreDNS rejects a Corefile with any other name.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() {
	dnsserver.Directives = []string{
		"reload", "bind", "ready", "health", "prometheus", "errors", "loadbalance", "cache", "kubernetes", "loop", "forward",
	}
	coremain.Run()
}
