package main

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/go-logr/logr"
)

const (
	finalizer = "clients.example.com/gadget"
	election  = "gadgets"
)

// A Gadget keeps a Deployment of so many replicas.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GadgetSpec   `json:"spec"`
	Status            GadgetStatus `json:"status,omitempty"`
}

// GadgetSpec is what is wanted.
type GadgetSpec struct {
	Replicas int32 `json:"replicas"`
}

// GadgetStatus says what was made of it.
type GadgetStatus struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The replicas that the Deployment asks for.
	Replicas int32 `json:"replicas"`
	// The ConfigMaps in the namespace that name the Gadget in a label.
	Notes int `json:"notes"`
	// Who wrote this.
	Leader string `json:"leader,omitempty"`
}

// GadgetList is a list of them.
type GadgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gadget `json:"items"`
}

// DeepCopyObject copies a Gadget.
func (g *Gadget) DeepCopyObject() runtime.Object {
	copied := *g
	g.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	return &copied
}

// DeepCopyObject copies a list.
func (l *GadgetList) DeepCopyObject() runtime.Object {
	copied := *l
	l.ListMeta.DeepCopyInto(&copied.ListMeta)
	copied.Items = nil
	for index := range l.Items {
		copied.Items = append(copied.Items, *l.Items[index].DeepCopyObject().(*Gadget))
	}
	return &copied
}

func gadgetDefinition(group string) *apiextensionsv1.CustomResourceDefinition {
	integer := apiextensionsv1.JSONSchemaProps{Type: "integer"}
	wanted := apiextensionsv1.JSONSchemaProps{Type: "integer", Minimum: to(0.0)}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: "Namespaced",
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Kind: "Gadget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Required: []string{"replicas"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{"replicas": wanted}},
						"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"observedGeneration": integer,
							"replicas": integer, "notes": integer, "leader": {Type: "string"}}},
					}}}}},
		},
	}
}

type reconciler struct {
	client.Client
	name string
}

// Reconcile makes the Deployment of a Gadget what the Gadget says, and writes the Gadget's status.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	gadget := &Gadget{}
	if err := r.Get(ctx, request.NamespacedName, gadget); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !gadget.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(gadget, finalizer) {
			return reconcile.Result{}, r.Update(ctx, gadget)
		}
		return reconcile.Result{}, nil
	}
	if controllerutil.AddFinalizer(gadget, finalizer) {
		return reconcile.Result{}, r.Update(ctx, gadget)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: gadget.Name, Namespace: gadget.Namespace}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		deployment.Spec.Replicas = &gadget.Spec.Replicas
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		if len(deployment.Spec.Template.Spec.Containers) == 0 {
			deployment.Spec.Template = podTemplate
		}
		return controllerutil.SetControllerReference(gadget, deployment, r.Scheme())
	}); err != nil {
		return reconcile.Result{}, err
	}
	notes := &metav1.PartialObjectMetadataList{}
	notes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := r.List(ctx, notes, client.InNamespace(gadget.Namespace), client.MatchingLabels{"gadget": gadget.Name}); err != nil {
		return reconcile.Result{}, err
	}
	gadget.Status = GadgetStatus{ObservedGeneration: gadget.Generation, Replicas: *deployment.Spec.Replicas, Notes: len(notes.Items), Leader: r.name}
	return reconcile.Result{}, r.Status().Update(ctx, gadget)
}

// A manager that runs until it is stopped.
type running struct {
	elected <-chan struct{}
	stop    context.CancelFunc
	ended   chan error
}

func startManager(ctx context.Context, config *rest.Config, kinds *runtime.Scheme, namespace, name string) (*running, error) {
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: kinds, Metrics: metrics.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache:          cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		LeaderElection: true, LeaderElectionID: election, LeaderElectionNamespace: namespace, LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, err
	}
	byLabel := func(_ context.Context, object client.Object) []reconcile.Request {
		gadget := object.GetLabels()["gadget"]
		if gadget == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: gadget}}}
	}
	err = ctrl.NewControllerManagedBy(manager).Named("gadgets").For(&Gadget{}).Owns(&appsv1.Deployment{}).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(byLabel), builder.OnlyMetadata).
		WithOptions(controller.Options{SkipNameValidation: to(true)}).
		Complete(&reconciler{Client: manager.GetClient(), name: name})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	result := &running{elected: manager.Elected(), stop: stop, ended: make(chan error, 1)}
	go func() { result.ended <- manager.Start(ctx) }()
	return result, nil
}

// Two managers, of which one leads, keep Deployments of Gadgets; the other takes over when the first ends.
func managers(ctx context.Context, config *rest.Config) error {
	log.SetLogger(logr.Discard())
	clientset := kubernetes.NewForConfigOrDie(config)
	created, err := clientset.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "manager-"}},
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	namespace := created.Name
	defer deleteSamples(context.WithoutCancel(ctx), config, namespace)
	definition, err := establish(ctx, config, gadgetDefinition(namespace+".example.com"))
	if err != nil {
		return err
	}
	defer func() {
		_ = apiextensions.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions().Delete(context.WithoutCancel(ctx),
			definition.Name, metav1.DeleteOptions{})
	}()
	version := schema.GroupVersion{Group: definition.Spec.Group, Version: "v1"}
	kinds := runtime.NewScheme()
	if err := scheme.AddToScheme(kinds); err != nil {
		return err
	}
	kinds.AddKnownTypes(version, &Gadget{}, &GadgetList{})
	metav1.AddToGroupVersion(kinds, version)

	seen := &traffic{}
	first, err := startManager(ctx, seen.of(config), kinds, namespace, "first")
	if err != nil {
		return err
	}
	defer first.stop()
	if err := first.lead(ctx); err != nil {
		return fmt.Errorf("the first manager: %w", err)
	}
	lease, err := clientset.CoordinationV1().Leases(namespace).Get(ctx, election, metav1.GetOptions{})
	if err != nil {
		return err
	}
	second, err := startManager(ctx, seen.of(config), kinds, namespace, "second")
	if err != nil {
		return err
	}
	defer second.stop()

	direct, err := client.NewWithWatch(config, client.Options{Scheme: kinds})
	if err != nil {
		return err
	}
	gadget := &Gadget{ObjectMeta: metav1.ObjectMeta{Name: "gadget", Namespace: namespace}, Spec: GadgetSpec{Replicas: 2}}
	if err := direct.Create(ctx, gadget); err != nil {
		return err
	}
	// Waits for a status, and gives the Gadget with it.
	status := func(wanted GadgetStatus) error {
		return until(ctx, direct, &GadgetList{}, namespace, fmt.Sprintf("the status %+v", wanted), func(event watch.Event) bool {
			found, isGadget := event.Object.(*Gadget)
			if !isGadget {
				return false
			}
			*gadget = *found.DeepCopyObject().(*Gadget)
			wanted.ObservedGeneration = found.Generation
			return found.Status == wanted
		})
	}
	if err := status(GadgetStatus{Replicas: 2, Leader: "first"}); err != nil {
		return err
	}
	gadget.Spec.Replicas = 3
	if err := direct.Update(ctx, gadget); err != nil {
		return err
	}
	if err := status(GadgetStatus{Replicas: 3, Leader: "first"}); err != nil {
		return err
	}
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "note", Namespace: namespace, Labels: map[string]string{"gadget": "gadget"}}}
	if err := direct.Create(ctx, note); err != nil {
		return err
	}
	if err := status(GadgetStatus{Replicas: 3, Notes: 1, Leader: "first"}); err != nil {
		return err
	}
	if err := scaledBack(ctx, direct, namespace); err != nil {
		return err
	}

	select {
	case <-second.elected:
		return fmt.Errorf("two managers lead at a time")
	default:
	}
	first.stop()
	if err := <-first.ended; err != nil {
		return fmt.Errorf("the first manager ended with: %w", err)
	}
	if err := second.lead(ctx); err != nil {
		return fmt.Errorf("the second manager: %w", err)
	}
	handed, err := clientset.CoordinationV1().Leases(namespace).Get(ctx, election, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := handedOver(lease, handed); err != nil {
		return err
	}
	if err := direct.Patch(ctx, gadget, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":1}}`))); err != nil {
		return err
	}
	if err := status(GadgetStatus{Replicas: 1, Notes: 1, Leader: "second"}); err != nil {
		return err
	}
	if err := direct.Delete(ctx, gadget); err != nil {
		return err
	}
	// The finalizer is taken away, then the Deployment goes with its owner.
	err = until(ctx, direct, &appsv1.DeploymentList{}, namespace, "the end of the Deployment", func(event watch.Event) bool {
		return event.Type == watch.Deleted
	})
	if err != nil {
		return err
	}
	if err := direct.Get(ctx, client.ObjectKeyFromObject(gadget), gadget); !apierrors.IsNotFound(err) {
		return fmt.Errorf("the Gadget is still there: %w", err)
	}
	second.stop()
	if err := <-second.ended; err != nil {
		return fmt.Errorf("the second manager ended with: %w", err)
	}
	return inWhat(seen)
}

func (r *running) lead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	select {
	case <-r.elected:
		return nil
	case err := <-r.ended:
		return fmt.Errorf("ended before it led: %w", err)
	case <-ctx.Done():
		return fmt.Errorf("does not lead")
	}
}

func handedOver(before, after *coordinationv1.Lease) error {
	if before.Spec.HolderIdentity == nil || after.Spec.HolderIdentity == nil || *before.Spec.HolderIdentity == *after.Spec.HolderIdentity {
		return fmt.Errorf("the Lease was not handed over: %+v, %+v", before.Spec, after.Spec)
	}
	if after.Spec.LeaseTransitions == nil || *after.Spec.LeaseTransitions == 0 {
		return fmt.Errorf("the Lease counts no transition: %+v", after.Spec)
	}
	return nil
}

// Another changes the Deployment, and the manager changes it back.
func scaledBack(ctx context.Context, direct client.WithWatch, namespace string) error {
	deployment := &appsv1.Deployment{}
	if err := direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "gadget"}, deployment); err != nil {
		return err
	}
	if owner := metav1.GetControllerOf(deployment); owner == nil || owner.Kind != "Gadget" {
		return fmt.Errorf("the Deployment is not owned by the Gadget")
	}
	patch := client.RawPatch("application/strategic-merge-patch+json", []byte(`{"spec":{"replicas":7}}`))
	if err := direct.Patch(ctx, deployment, patch); err != nil {
		return err
	}
	return until(ctx, direct, &appsv1.DeploymentList{}, namespace, "three replicas again", func(event watch.Event) bool {
		found, isDeployment := event.Object.(*appsv1.Deployment)
		return isDeployment && found.Generation > deployment.Generation && *found.Spec.Replicas == 3
	})
}

// Watches until an event, or an object that is there already, is what is waited for.
func until(ctx context.Context, direct client.WithWatch, list client.ObjectList, namespace, what string, done func(watch.Event) bool) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	events, err := direct.Watch(ctx, list, client.InNamespace(namespace))
	if err != nil {
		return err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return fmt.Errorf("while waiting for %s: %w", what, apierrors.FromObject(event.Object))
		}
		if done(event) {
			return nil
		}
	}
	return fmt.Errorf("%s did not come", what)
}

// Says in what encoding the managers were answered.
func inWhat(seen *traffic) error {
	for _, wanted := range []string{"list deployments protobuf|initial deployments protobuf", "watch deployments protobuf|initial deployments protobuf",
		"POST deployments protobuf", "PUT deployments protobuf", "GET leases protobuf", "PUT leases protobuf",
		"list configmaps protobuf|initial configmaps protobuf", "list gadgets json|initial gadgets json", "PUT gadgets json"} {
		found := false
		for _, kind := range strings.Split(wanted, "|") {
			found = found || seen.answers(kind) > 0
		}
		if !found {
			return fmt.Errorf("no answer was %s: %v", wanted, seen.count)
		}
	}
	fmt.Println("two managers of controller-runtime kept Deployments in protobuf and Gadgets in JSON, and handed over their Lease")
	return nil
}
