package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

var codecs = func() serializer.CodecFactory {
	if err := apiextensionsv1.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme.Scheme)
}()

// Creates an object of each kind that has samples by a client that speaks protobuf, and compares what the server says of every
// kind in protobuf with what it says in JSON: lists, single objects, watches.
func encodings(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = codecs.WithoutConversion()
	config.GroupVersion = &schema.GroupVersion{}
	raw, err := rest.RESTClientForConfigAndClient(config, client)
	if err != nil {
		return err
	}
	namespace, err := createSamples(ctx, inProtobuf(config))
	if err != nil {
		return fmt.Errorf("samples: %w", err)
	}
	defer deleteSamples(context.WithoutCancel(ctx), config, namespace)
	// Discovery in protobuf too.
	speaking := inProtobuf(config)
	groups, err := discovery.NewDiscoveryClientForConfigOrDie(speaking).ServerPreferredResources()
	if err != nil {
		return err
	}
	kinds, objects := 0, 0
	for _, list := range groups {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, resource := range list.APIResources {
			kind := version.WithKind(resource.Kind)
			if !scheme.Scheme.Recognizes(kind) || !contains(resource.Verbs, "list") || strings.Contains(resource.Name, "/") {
				continue
			}
			compared, err := compareKind(ctx, raw, version, resource)
			if err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			kinds, objects = kinds+1, objects+compared
		}
	}
	fmt.Printf("%d kinds with %d objects say in protobuf what they say in JSON\n", kinds, objects)
	if kinds < 25 || objects < 25 {
		return fmt.Errorf("too few kinds or objects were found to compare")
	}
	return nil
}

func contains(verbs []string, verb string) bool {
	for _, each := range verbs {
		if each == verb {
			return true
		}
	}
	return false
}

func path(version schema.GroupVersion, resource string) string {
	if version.Group == "" {
		return "/api/" + version.Version + "/" + resource
	}
	return "/apis/" + version.String() + "/" + resource
}

// Compares the objects of a kind; gives their number.
func compareKind(ctx context.Context, raw *rest.RESTClient, version schema.GroupVersion, resource metav1.APIResource) (int, error) {
	collection := path(version, resource.Name)
	// What is changed between two requests is asked for again.
	for attempt := 0; ; attempt++ {
		inJSON, err := list(ctx, raw, collection, "application/json")
		if err != nil {
			return 0, err
		}
		inProtobuf, err := list(ctx, raw, collection, protobuf)
		if err != nil {
			return 0, err
		}
		same := equality.Semantic.DeepEqual(inJSON, inProtobuf)
		if !same && attempt < 20 && versions(inJSON) != versions(inProtobuf) {
			continue
		}
		if !same {
			return 0, fmt.Errorf("the lists differ:\n%s", diff.Diff(inJSON, inProtobuf))
		}
		if contains(resource.Verbs, "watch") {
			if err := compareWatch(ctx, raw, collection, inJSON); err != nil {
				return 0, err
			}
		}
		return meta.LenList(inJSON), nil
	}
}

// The versions of a list's objects; that of the list itself grows with every other object too.
func versions(list runtime.Object) string {
	var text strings.Builder
	_ = meta.EachListItem(list, func(object runtime.Object) error {
		accessor, err := meta.Accessor(object)
		if err == nil {
			fmt.Fprintf(&text, "%s/%s=%s ", accessor.GetNamespace(), accessor.GetName(), accessor.GetResourceVersion())
		}
		return err
	})
	return text.String()
}

func list(ctx context.Context, raw *rest.RESTClient, path, accept string) (runtime.Object, error) {
	body, contentType, err := get(ctx, raw, path, accept)
	if err != nil {
		return nil, err
	}
	if contentType != accept {
		return nil, fmt.Errorf("%s was answered in %s for %s", path, contentType, accept)
	}
	object, _, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", path, accept, err)
	}
	accessor, err := meta.ListAccessor(object)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion("")
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return object, nil
}

func get(ctx context.Context, raw *rest.RESTClient, path, accept string) ([]byte, string, error) {
	var contentType string
	result := raw.Get().AbsPath(path).SetHeader("Accept", accept).Do(ctx).ContentType(&contentType)
	body, err := result.Raw()
	return body, contentType, err
}

// Reads the state at the beginning of a watch frame by frame, and compares it with the list.
func compareWatch(ctx context.Context, raw *rest.RESTClient, path string, list runtime.Object) error {
	expected := map[string]runtime.Object{}
	err := meta.EachListItem(list, func(object runtime.Object) error {
		accessor, err := meta.Accessor(object)
		if err == nil {
			expected[accessor.GetNamespace()+"/"+accessor.GetName()+"="+accessor.GetResourceVersion()] = object
		}
		return err
	})
	if err != nil {
		return err
	}
	stream, err := raw.Get().AbsPath(path).SetHeader("Accept", protobuf).Param("watch", "1").
		Param("sendInitialEvents", "true").Param("resourceVersionMatch", "NotOlderThan").
		Param("allowWatchBookmarks", "true").Param("timeoutSeconds", "20").Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		var length uint32
		if err := binary.Read(stream, binary.BigEndian, &length); err != nil {
			return fmt.Errorf("the watch ended before its state was complete: %w", err)
		}
		frame := make([]byte, length)
		if _, err := io.ReadFull(stream, frame); err != nil {
			return err
		}
		event := metav1.WatchEvent{}
		if err := event.Unmarshal(frame); err != nil {
			return err
		}
		if !bytes.HasPrefix(event.Object.Raw, []byte("k8s\x00")) {
			return fmt.Errorf("the object of a %s event has no envelope", event.Type)
		}
		object, _, err := codecs.UniversalDeserializer().Decode(event.Object.Raw, nil, nil)
		if err != nil {
			return err
		}
		if event.Type == "BOOKMARK" {
			break
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		key := accessor.GetNamespace() + "/" + accessor.GetName() + "=" + accessor.GetResourceVersion()
		// What is not in the list was changed since.
		if listed, found := expected[key]; found {
			object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			if !equality.Semantic.DeepEqual(listed, object) {
				return fmt.Errorf("%s differs in the watch:\n%s", key, diff.Diff(listed, object))
			}
			delete(expected, key)
		}
	}
	// Nodes and Leases change all the time; of what does not, everything was seen.
	if len(expected) > 2 {
		return fmt.Errorf("the watch left out %d objects", len(expected))
	}
	return nil
}
