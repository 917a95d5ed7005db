// Clients of the Kubernetes project's own libraries, tried against any server of its API:
//
//	go-clients encodings KUBECONFIG            protobuf says what JSON says, for each kind, in answers and watches
//	go-clients metadata KUBECONFIG             the metadata client and its informers
//	go-clients informer KUBECONFIG COMMAND…    an informer, while COMMAND kills and restarts the server
//	go-clients manager KUBECONFIG              two managers of controller-runtime, one of which leads
//
// Prints what it found; ends with 1 at the first thing that is not as it should be.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// How long anything is waited for.
const deadline = 60 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) < 2 {
		return fmt.Errorf("usage: go-clients encodings|metadata|informer|manager KUBECONFIG [COMMAND…]")
	}
	config, err := clientcmd.BuildConfigFromFlags("", arguments[1])
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 1000
	config.UserAgent = "go-clients"
	// Of a kind that is deprecated; each is asked for.
	config.WarningHandler = rest.NoWarnings{}
	ctx, cancel := context.WithTimeout(context.Background(), 4*deadline)
	defer cancel()
	switch arguments[0] {
	case "encodings":
		return encodings(ctx, config)
	case "metadata":
		return metadataClient(ctx, config)
	case "informer":
		return informer(ctx, config, arguments[2:])
	case "manager":
		return managers(ctx, config)
	}
	return fmt.Errorf("no such client: %s", arguments[0])
}

// The configuration of a client that likes protobuf best.
func inProtobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = protobuf
	config.AcceptContentTypes = protobuf + ",application/json"
	return config
}

// What was asked and in what it was answered.
type traffic struct {
	lock  sync.Mutex
	count map[string]int
}

// Counts each answer of `config` as `VERB RESOURCE ENCODING`; VERB is a method, `list`, `watch`, or
// `initial` for a watch that begins with the whole state.
func (t *traffic) of(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil {
				t.note(request, response.Header.Get("Content-Type"))
			}
			return response, err
		})
	})
	return config
}

func (t *traffic) note(request *http.Request, contentType string) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	verb, resource := request.Method, parts[len(parts)-1]
	for index, part := range parts {
		if part == "namespaces" && index+2 < len(parts) {
			resource = parts[index+2]
		}
	}
	switch query := request.URL.Query(); {
	case query.Get("watch") != "":
		verb = "watch"
		if query.Get("sendInitialEvents") == "true" {
			verb = "initial"
		}
	case verb == http.MethodGet && resource == parts[len(parts)-1]:
		verb = "list"
	}
	encoding := "other"
	switch {
	case strings.HasPrefix(contentType, protobuf):
		encoding = "protobuf"
	case strings.HasPrefix(contentType, "application/json"):
		encoding = "json"
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.count == nil {
		t.count = map[string]int{}
	}
	t.count[verb+" "+resource+" "+encoding]++
}

func (t *traffic) answers(kind string) int {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.count[kind]
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
