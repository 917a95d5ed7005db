//go:build tools

// Package tools names the program that this module builds.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
