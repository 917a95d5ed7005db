//go:build tools

// Package tools names the program that this module builds.
package tools

import _ "k8s.io/kubernetes/cmd/kubectl"
