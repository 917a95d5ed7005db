// Writes bodies in protobuf and in JSON, as the reference encodes them, for the decoder's tests:
// `go run ./golden > ../../../src/protobuf/golden.txt`.
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type message interface{ Marshal() ([]byte, error) }

func show(apiVersion, kind string, object message) {
	raw, err := object.Marshal()
	if err != nil {
		panic(err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	envelope, err := unknown.Marshal()
	if err != nil {
		panic(err)
	}
	text, _ := json.Marshal(object)
	fmt.Println(hex.EncodeToString(append([]byte("k8s\x00"), envelope...)))
	fmt.Println(string(text))
}

func main() {
	zero := int32(0)
	no := false
	when := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	show("v1", "ConfigMap", &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": ""}}, Data: map[string]string{"k": "é"}, BinaryData: map[string][]byte{"b": {1, 2, 255}}})
	show("v1", "Secret", &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: "s", CreationTimestamp: when}, Data: map[string][]byte{"p": []byte("word")}, Type: "Opaque"})
	show("apps/v1", "Deployment", &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "n"}, Spec: appsv1.DeploymentSpec{Replicas: &zero, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &intstr.IntOrString{Type: intstr.String, StrVal: "25%"}}}, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{AutomountServiceAccountToken: &no, Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}, Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 80}}, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("100m")}}, LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}}}}}}}})
	minimum := -1.5
	show("apiextensions.k8s.io/v1", "CustomResourceDefinition", &apiextensionsv1.CustomResourceDefinition{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}, ObjectMeta: metav1.ObjectMeta{Name: "x.y"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "y", Scope: "Namespaced", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "x", Kind: "X"}, Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"l": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "number", Minimum: &minimum, Enum: []apiextensionsv1.JSON{{Raw: []byte("1")}}}}}, "m": {AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true}, Default: &apiextensionsv1.JSON{Raw: []byte("{\"a\":[]}")}}}}}}}}})
	seconds := int64(0)
	policy := metav1.DeletePropagationForeground
	show("v1", "DeleteOptions", &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, GracePeriodSeconds: &seconds, PropagationPolicy: &policy})
}
