// Writes the protobuf field numbers of the Kubernetes types that the embedded API decodes, read from the struct tags of
// the published Go modules: `go run . > ../fields.txt`.
//
// One line is a message: its name, then NUMBER:NAME:TYPE:FLAGS for each field. An empty NAME is a field whose own fields
// stand in its place. Flags: r repeated, m map with text keys, z left out when zero.
package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type field struct{ number, name, kind, flags string }

var messages = map[string][]field{}

var special = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                                             "time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                                        "microtime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":                                         "duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                                         "raw",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                                         "quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":                                       "intorstring",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                                          "raw",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                         "raw",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "schemaorbool",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "schemaorarray",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "schemaorstrings",
}

func id(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

func short(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	return strings.Join(parts[len(parts)-2:], ".") + "." + t.Name()
}

func scalar(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint32, reflect.Uint64:
		return "int"
	case reflect.Float64:
		return "double"
	case reflect.Struct:
		if name, found := special[id(t)]; found {
			return name
		}
		visit(t)
		return short(t)
	}
	panic("no type for " + t.String())
}

func visit(t reflect.Type) {
	name := short(t)
	if _, seen := messages[name]; seen {
		return
	}
	messages[name] = []field{}
	fields := []field{}
	for index := range t.NumField() {
		member := t.Field(index)
		tag := strings.Split(member.Tag.Get("protobuf"), ",")
		if len(tag) < 3 {
			continue
		}
		names := strings.Split(member.Tag.Get("json"), ",")
		if names[0] == "-" {
			continue
		}
		result := field{number: tag[1], name: names[0]}
		omits := strings.Contains(member.Tag.Get("json"), "omitempty")
		kind := member.Type
		switch {
		case kind.Kind() == reflect.Pointer:
			kind = kind.Elem()
		case kind.Kind() == reflect.Slice || kind.Kind() == reflect.Map:
		default:
			if omits || kind.Kind() == reflect.Struct {
				result.flags += "z"
			}
		}
		switch {
		case kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Uint8:
			result.kind = "bytes"
		case kind.Kind() == reflect.Slice && kind.Name() != "" && tag[2] == "opt":
			// A list with a type of its own is a message that holds it.
			result.kind = "list-" + scalar(kind.Elem())
		case kind.Kind() == reflect.Slice:
			result.flags += "r"
			if kind.Elem().Kind() == reflect.Pointer {
				result.kind = scalar(kind.Elem().Elem())
			} else {
				result.kind = scalar(kind.Elem())
			}
		case kind.Kind() == reflect.Map:
			result.flags += "m"
			element := kind.Elem()
			switch {
			case element.Kind() == reflect.Slice && element.Elem().Kind() == reflect.Uint8:
				result.kind = "bytes"
			case element.Kind() == reflect.Slice:
				result.kind = "list-" + scalar(element.Elem())
			default:
				result.kind = scalar(element)
			}
		default:
			result.kind = scalar(kind)
		}
		fields = append(fields, result)
	}
	messages[name] = fields
}

func main() {
	for _, root := range []any{
		corev1.Namespace{}, corev1.ConfigMap{}, corev1.Secret{}, corev1.ServiceAccount{}, corev1.Service{}, corev1.Event{},
		corev1.Pod{}, corev1.Node{}, corev1.Binding{}, corev1.Endpoints{}, corev1.PersistentVolumeClaim{},
		corev1.PodTemplate{},
		appsv1.Deployment{}, appsv1.ReplicaSet{}, coordinationv1.Lease{}, autoscalingv1.Scale{}, policyv1.Eviction{},
		apiextensionsv1.CustomResourceDefinition{}, metav1.DeleteOptions{}, metav1.PartialObjectMetadata{},
		metav1.APIVersions{}, metav1.APIGroupList{}, metav1.APIGroup{}, metav1.APIResourceList{},
		rbacv1.Role{}, rbacv1.RoleBinding{}, rbacv1.ClusterRole{}, rbacv1.ClusterRoleBinding{},
		authenticationv1.TokenRequest{}, authenticationv1.TokenReview{}, authenticationv1.SelfSubjectReview{},
		authorizationv1.SubjectAccessReview{}, authorizationv1.LocalSubjectAccessReview{},
		authorizationv1.SelfSubjectAccessReview{}, authorizationv1.SelfSubjectRulesReview{},
		autoscalingv2.HorizontalPodAutoscaler{}, batchv1.CronJob{}, batchv1.Job{}, discoveryv1.EndpointSlice{}, eventsv1.Event{},
		networkingv1.NetworkPolicy{}, networkingv1.Ingress{}, policyv1.PodDisruptionBudget{}, nodev1.RuntimeClass{},
		admissionregistrationv1.ValidatingAdmissionPolicy{}, admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
	} {
		visit(reflect.TypeOf(root))
	}
	for _, name := range slices.Sorted(maps.Keys(messages)) {
		fmt.Print(name)
		for _, field := range messages[name] {
			fmt.Printf(" %s:%s:%s:%s", field.number, field.name, field.kind, field.flags)
		}
		fmt.Println()
	}
}
