package main

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func to[T any](value T) *T { return &value }

var labels = map[string]string{"app": "sample", "empty": ""}

func named() metav1.ObjectMeta {
	// A Pod of these labels is nobody's: a ReplicaSet would take it for its own, and away.
	return metav1.ObjectMeta{Name: "sample", Labels: map[string]string{"sample": ""}, Annotations: map[string]string{"example.com/a": "ü\n"}}
}

var podTemplate = corev1.PodTemplateSpec{
	ObjectMeta: metav1.ObjectMeta{Labels: labels},
	Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: to(int64(0)),
		AutomountServiceAccountToken:  to(false),
		NodeSelector:                  map[string]string{"nowhere": "true"},
		Tolerations:                   []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: to(int64(3))}},
		Volumes: []corev1.Volume{
			{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: to(resource.MustParse("1Gi"))}}},
			{Name: "projected", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "sample"},
					Items: []corev1.KeyToPath{{Key: "text", Path: "there/text", Mode: to(int32(0o400))}}}},
			}}}},
		},
		Containers: []corev1.Container{{
			Name: "main", Image: "example.com/nothing:1", Command: []string{"a", ""},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
			Env: []corev1.EnvVar{{Name: "EMPTY"}, {Name: "NODE", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("0.1"), "memory": resource.MustParse("1500k")},
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("1e3")},
			},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: "/", Port: intstr.FromString("http")}}},
			ReadinessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}},
			SecurityContext: &corev1.SecurityContext{RunAsNonRoot: to(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			VolumeMounts:    []corev1.VolumeMount{{Name: "empty", MountPath: "/empty"}},
		}},
	},
}

// Creates a namespace with an object of nearly every kind by a client that sends and accepts protobuf, and compares what is
// answered with what is read again. Gives the namespace.
func createSamples(ctx context.Context, config *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	created, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "encodings-"}},
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	namespace, options := created.Name, metav1.CreateOptions{}
	job := podTemplate.DeepCopy()
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	selector := &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"sample"}}}}
	now := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC))
	failed := error(nil)
	note := func(_ any, err error) { failed = errors.Join(failed, err) }
	core, rbac, networking := client.CoreV1(), client.RbacV1(), client.NetworkingV1()
	note(core.ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: named(), Data: map[string]string{"text": "é", "empty": ""},
		BinaryData: map[string][]byte{"binary": {1, 2, 255}}}, options))
	note(core.Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: named(), StringData: map[string]string{"a": "b"},
		Data: map[string][]byte{"c": {0}, "none": {}}}, options))
	note(core.ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: named()}, options))
	note(core.Services(namespace).Create(ctx, &corev1.Service{ObjectMeta: named(), Spec: corev1.ServiceSpec{Selector: labels,
		Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http"), AppProtocol: to("http")},
			{Name: "other", Port: 81, TargetPort: intstr.FromInt32(8081)}}}}, options))
	note(core.Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: named(), Spec: podTemplate.Spec}, options))
	note(core.PersistentVolumeClaims(namespace).Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: named(), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}, StorageClassName: to(""),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("10Gi")}}}}, options))
	note(core.Events(namespace).Create(ctx, &corev1.Event{ObjectMeta: named(), InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap",
		Namespace: namespace, Name: "sample", FieldPath: "data"}, Reason: "Sampled", Message: "seen", Type: "Normal", Count: 2,
		FirstTimestamp: metav1.NewTime(now.Time), LastTimestamp: metav1.NewTime(now.Time), EventTime: now, Action: "Sample",
		ReportingController: "example.com/sampler", ReportingInstance: "one",
		Series: &corev1.EventSeries{Count: 3, LastObservedTime: now}}, options))
	note(client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: named(), Spec: appsv1.DeploymentSpec{
		Replicas: to(int32(0)), Selector: selector, Template: podTemplate, Strategy: appsv1.DeploymentStrategy{
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: to(intstr.FromString("30%")), MaxUnavailable: to(intstr.FromInt32(0))}}}}, options))
	note(client.AppsV1().ReplicaSets(namespace).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: named(), Spec: appsv1.ReplicaSetSpec{
		Replicas: to(int32(0)), Selector: selector, Template: podTemplate}}, options))
	note(client.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{ObjectMeta: named(), Spec: batchv1.JobSpec{Template: *job,
		Suspend: to(true), PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: "FailJob",
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: "In", Values: []int32{1, 42}}}}}}}, options))
	note(client.BatchV1().CronJobs(namespace).Create(ctx, &batchv1.CronJob{ObjectMeta: named(), Spec: batchv1.CronJobSpec{
		Schedule: "0 0 1 1 *", Suspend: to(true), JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: *job}}}}, options))
	note(client.CoordinationV1().Leases(namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: named(), Spec: coordinationv1.LeaseSpec{
		HolderIdentity: to("me"), LeaseDurationSeconds: to(int32(15)), AcquireTime: &now, RenewTime: &now}}, options))
	note(client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: named(),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment",
			Name: "none", APIVersion: "apps/v1"}, MaxReplicas: 3, Metrics: []autoscalingv2.MetricSpec{{Type: "Resource",
			Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu", Target: autoscalingv2.MetricTarget{Type: "Utilization",
				AverageUtilization: to(int32(50))}}}}}}, options))
	note(client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: named(), AddressType: "IPv4",
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.3"}, Conditions: discoveryv1.EndpointConditions{Ready: to(false)}}},
		Ports:     []discoveryv1.EndpointPort{{Name: to("http"), Port: to(int32(80)), Protocol: to(corev1.ProtocolTCP)}}}, options))
	note(networking.Ingresses(namespace).Create(ctx, &networkingv1.Ingress{ObjectMeta: named(), Spec: networkingv1.IngressSpec{
		Rules: []networkingv1.IngressRule{{Host: "example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: to(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: "sample", Port: networkingv1.ServiceBackendPort{Number: 80}}}}}}}}}}}, options))
	note(networking.NetworkPolicies(namespace).Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: named(), Spec: networkingv1.NetworkPolicySpec{
		Ingress: []networkingv1.NetworkPolicyIngressRule{{}, {From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: to(intstr.FromInt32(80)), EndPort: to(int32(90))}}}}}}, options))
	note(client.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: named(),
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: to(intstr.FromString("50%")), Selector: selector}}, options))
	note(rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: named(), Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"},
		APIGroups: []string{""}, Resources: []string{"pods/log"}, ResourceNames: []string{"a"}}}}, options))
	note(rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: named(), RoleRef: rbacv1.RoleRef{
		APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "sample"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount",
		Name: "sample", Namespace: namespace}}}, options))
	cluster := named()
	cluster.Name = namespace
	note(rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: cluster, AggregationRule: &rbacv1.AggregationRule{
		ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"none": "such"}}}}}, options))
	note(rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: cluster, RoleRef: rbacv1.RoleRef{
		APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: namespace}}, options))
	note(client.NodeV1().RuntimeClasses().Create(ctx, &nodev1.RuntimeClass{ObjectMeta: cluster, Handler: "none",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("5m")}}}, options))
	definitions, err := apiextensions.NewForConfig(config)
	if err != nil {
		return namespace, err
	}
	note(definitions.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, sampleDefinition(namespace), options))
	if failed != nil {
		return namespace, failed
	}
	return namespace, readAgain(ctx, client, namespace)
}

// What is read in protobuf has what was sent in it.
func readAgain(ctx context.Context, client kubernetes.Interface, namespace string) error {
	read, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, "sample", metav1.GetOptions{})
	if err != nil {
		return err
	}
	expected := &corev1.ConfigMap{Data: map[string]string{"text": "é", "empty": ""}, BinaryData: map[string][]byte{"binary": {1, 2, 255}}}
	if !equality.Semantic.DeepEqual(read.Data, expected.Data) || !equality.Semantic.DeepEqual(read.BinaryData, expected.BinaryData) {
		return errors.New("a ConfigMap is not read as it was written")
	}
	pod, err := client.CoreV1().Pods(namespace).Get(ctx, "sample", metav1.GetOptions{})
	if err != nil {
		return err
	}
	container := pod.Spec.Containers[0]
	if container.LivenessProbe.HTTPGet.Port != intstr.FromString("http") || container.ReadinessProbe.TCPSocket.Port != intstr.FromInt32(8080) {
		return errors.New("the ports of a Pod's probes are not read as they were written")
	}
	_, err = client.CoreV1().ConfigMaps(namespace).Get(ctx, "missing", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return errors.New("a ConfigMap that is not there is not a NotFound in protobuf")
	}
	return nil
}

func sampleDefinition(group string) *apiextensionsv1.CustomResourceDefinition {
	name := "samples." + group + ".example.com"
	boundaries := apiextensionsv1.JSONSchemaProps{Type: "number", Minimum: to(0.5), Maximum: to(1e6), Default: &apiextensionsv1.JSON{Raw: []byte("3")}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group + ".example.com", Scope: "Namespaced",
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "samples", Kind: "Sample", ShortNames: []string{"smp"}},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Subresources:             &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Size", Type: "integer", JSONPath: ".spec.size", Priority: 1}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", Nullable: true,
						Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"size":  boundaries,
							"names": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
							"map": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true,
								Schema: &apiextensionsv1.JSONSchemaProps{XIntOrString: true}}},
							"kind": {Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"a"`)}, {Raw: []byte(`"b"`)}}},
						},
						XValidations: apiextensionsv1.ValidationRules{{Rule: "!has(self.size) || self.size < 100.0", Message: "too large"}},
					}},
				}},
			}},
		},
	}
}

// Takes away what was created; what is gone already is no matter.
func deleteSamples(ctx context.Context, config *rest.Config, namespace string) {
	client := kubernetes.NewForConfigOrDie(config)
	definitions := apiextensions.NewForConfigOrDie(config)
	options := metav1.DeleteOptions{}
	_ = client.CoreV1().Namespaces().Delete(ctx, namespace, options)
	_ = client.RbacV1().ClusterRoles().Delete(ctx, namespace, options)
	_ = client.RbacV1().ClusterRoleBindings().Delete(ctx, namespace, options)
	_ = client.NodeV1().RuntimeClasses().Delete(ctx, namespace, options)
	_ = definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, "samples."+namespace+".example.com", options)
}
