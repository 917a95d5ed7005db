package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// Reads the metadata of a built-in kind and of a custom resource by the metadata client, in protobuf, and follows both by its
// informers.
func metadataClient(ctx context.Context, config *rest.Config) error {
	namespace, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "metadata-"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	defer deleteSamples(context.WithoutCancel(ctx), config, namespace.Name)
	definition, err := establish(ctx, config, sampleDefinition(namespace.Name))
	if err != nil {
		return err
	}
	samples := schema.GroupVersionResource{Group: definition.Spec.Group, Version: "v1", Resource: "samples"}
	objects := dynamic.NewForConfigOrDie(config)
	for _, each := range []struct {
		resource    schema.GroupVersionResource
		version, of string
	}{{configMaps, "v1", "ConfigMap"}, {samples, samples.GroupVersion().String(), "Sample"}} {
		seen := &traffic{}
		client, err := metadata.NewForConfig(seen.of(config))
		if err != nil {
			return err
		}
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": each.version, "kind": each.of,
			"metadata": map[string]any{"name": "one", "labels": map[string]any{"a": "b"}}}}
		if err := followMetadata(ctx, client, objects.Resource(each.resource).Namespace(namespace.Name), each.resource, object, namespace.Name); err != nil {
			return fmt.Errorf("%s: %w", each.resource.Resource, err)
		}
		for _, verb := range []string{"GET", "list", "initial"} {
			if seen.answers(verb+" "+each.resource.Resource+" protobuf") == 0 {
				return fmt.Errorf("no %s of metadata of %s was answered in protobuf: %v", verb, each.resource.Resource, seen.count)
			}
		}
	}
	fmt.Println("the metadata client and its informers see built-in kinds and custom resources, in protobuf")
	return nil
}

func followMetadata(ctx context.Context, client metadata.Interface, objects dynamic.ResourceInterface, resource schema.GroupVersionResource,
	object *unstructured.Unstructured, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	events := make(chan string, 100)
	factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, namespace, func(options *metav1.ListOptions) {
		options.LabelSelector = "a"
	})
	informer := factory.ForResource(resource).Informer()
	tell := func(kind string, object any) {
		if gone, unknown := object.(cache.DeletedFinalStateUnknown); unknown {
			object = gone.Obj
		}
		found := object.(*metav1.PartialObjectMetadata)
		events <- kind + " " + found.Name + " " + found.Labels["a"]
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { tell("added", object) },
		UpdateFunc: func(_, object any) { tell("updated", object) },
		DeleteFunc: func(object any) { tell("deleted", object) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("the informer did not synchronise")
	}
	expect := func(text string) error {
		select {
		case event := <-events:
			if event != text {
				return fmt.Errorf("the informer says %q instead of %q", event, text)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("the informer does not say %q", text)
		}
	}
	created, err := objects.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := expect("added one b"); err != nil {
		return err
	}
	mine := client.Resource(resource).Namespace(namespace)
	got, err := mine.Get(ctx, "one", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if got.UID != created.GetUID() || got.ResourceVersion != created.GetResourceVersion() {
		return fmt.Errorf("the metadata are those of another object: %+v", got)
	}
	list, err := mine.List(ctx, metav1.ListOptions{LabelSelector: "a"})
	if err != nil {
		return err
	}
	if len(list.Items) != 1 || list.Items[0].UID != got.UID {
		return fmt.Errorf("the list of metadata is another: %+v", list)
	}
	patched, err := mine.Patch(ctx, "one", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"c"}}}`), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	if patched.Labels["a"] != "c" {
		return fmt.Errorf("the patched metadata are those of before")
	}
	if err := expect("updated one c"); err != nil {
		return err
	}
	if err := mine.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "a=c"}); err != nil {
		return err
	}
	if err := expect("deleted one c"); err != nil {
		return err
	}
	if _, err := mine.Get(ctx, "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("what is deleted is not NotFound: %v", err)
	}
	return nil
}

// Creates a definition and waits until its kind is served.
func establish(ctx context.Context, config *rest.Config, definition *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	client := apiextensions.NewForConfigOrDie(inProtobuf(config)).ApiextensionsV1().CustomResourceDefinitions()
	created, err := client.Create(ctx, definition, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", created.Name).String()
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", created.Name).String()
			return client.Watch(ctx, options)
		},
	}
	if _, err := watchtools.UntilWithSync(ctx, source, created, nil, func(event watch.Event) (bool, error) {
		for _, condition := range event.Object.(*apiextensionsv1.CustomResourceDefinition).Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	}); err != nil {
		return nil, fmt.Errorf("the definition is not established: %w", err)
	}
	// On a cluster the kind is served a moment after its definition says so.
	served := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: created.Spec.Group,
		Version: created.Spec.Versions[0].Name, Resource: created.Spec.Names.Plural})
	return created, retry(ctx, func(ctx context.Context) error {
		_, err := served.List(ctx, metav1.ListOptions{})
		return err
	})
}

// Does something again until it succeeds; gives the last error when the time is over.
func retry(ctx context.Context, try func(context.Context) error) error {
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, at last: %w", ctx.Err(), err)
		case <-ticks.C:
		}
	}
}
