package build

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	corev1 "k8s.io/api/core/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// Differences describes in words how a pod differs from the present template. Fields that others
// added when the pod was created, such as tolerations, are no differences.
func Differences(pod *corev1.Pod, template *corev1.PodTemplateSpec) string {
	var words []string
	say := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if RestartOf(pod.Annotations) != RestartOf(template.Annotations) {
		say("a restart was asked for")
	}
	if pod.Annotations[annotationAuth] != template.Annotations[annotationAuth] {
		say("the auth Secret has changed")
	}
	if pod.Annotations[annotationTrust] != template.Annotations[annotationTrust] {
		say("the CAs that are trusted have changed")
	}
	if len(pod.Spec.Containers) == 0 || len(template.Spec.Containers) == 0 {
		return strings.Join(append(words, "its containers have changed"), ", ")
	}
	was, is := &pod.Spec.Containers[0], &template.Spec.Containers[0]
	if was.Image != is.Image {
		say("image %s becomes %s", was.Image, is.Image)
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU} {
		if a, b := was.Resources.Requests[name], is.Resources.Requests[name]; a.Cmp(b) != 0 {
			say("%s %s becomes %s", name, a.String(), b.String())
		}
	}
	words = append(words, argDifferences(was.Args, is.Args)...)
	if names := changedEnv(was.Env, is.Env); len(names) > 0 {
		say("environment %s changes", strings.Join(names, ", "))
	}
	if before, after := projectedSecrets(pod.Spec.Volumes), projectedSecrets(template.Spec.Volumes); before != "" && after != "" && before != after {
		say("Secrets of clients' TLS %s become %s", before, after)
	}
	if !equality.Semantic.DeepEqual(pod.Spec.NodeSelector, template.Spec.NodeSelector) {
		say("placement.nodeSelector changes")
	}
	if pod.Spec.PriorityClassName != template.Spec.PriorityClassName {
		say("priority class %q becomes %q", pod.Spec.PriorityClassName, template.Spec.PriorityClassName)
	}
	for _, t := range template.Spec.Tolerations {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(has corev1.Toleration) bool { return equality.Semantic.DeepEqual(has, t) }) {
			say("placement.tolerations change")
			break
		}
	}
	if !contains(pod.Labels, template.Labels) {
		say("placement.labels change")
	}
	if !contains(without(pod.Annotations), without(template.Annotations)) {
		say("placement.annotations change")
	}
	if len(words) == 0 {
		return "its template has changed"
	}
	return strings.Join(words, ", ")
}

// RestartOf returns the requested restart for which a pod or template was made.
func RestartOf(annotations map[string]string) string { return annotations[v1alpha1.AnnotationRestart] }

func argDifferences(was, is []string) (words []string) {
	flags := func(args []string) map[string]string {
		values := map[string]string{}
		for _, arg := range args {
			name, value, _ := strings.Cut(arg, "=")
			values[name] = value
		}
		return values
	}
	before, after := flags(was), flags(is)
	names := slices.Sorted(maps.Keys(after))
	for name := range before {
		if _, ok := after[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		a, had := before[name]
		b, has := after[name]
		switch {
		case !had:
			words = append(words, "flag "+name+" is new")
		case !has:
			words = append(words, "flag "+name+" goes")
		case a != b:
			words = append(words, fmt.Sprintf("%s %s becomes %s", strings.TrimLeft(name, "-"), a, b))
		}
	}
	return words
}

// projectedSecrets returns where the files of clients' TLS come from, in words; empty: there are
// none.
func projectedSecrets(volumes []corev1.Volume) string {
	var words []string
	for _, v := range volumes {
		if v.Name != clientTLSVolume || v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.Secret == nil {
				continue
			}
			var keys []string
			for _, item := range source.Secret.Items {
				keys = append(keys, item.Key)
			}
			words = append(words, fmt.Sprintf("%s (%s)", source.Secret.Name, strings.Join(keys, ", ")))
		}
	}
	return strings.Join(words, " and ")
}

func changedEnv(was, is []corev1.EnvVar) (names []string) {
	find := func(list []corev1.EnvVar, name string) *corev1.EnvVar {
		if i := slices.IndexFunc(list, func(e corev1.EnvVar) bool { return e.Name == name }); i >= 0 {
			return &list[i]
		}
		return nil
	}
	for _, e := range is {
		if old := find(was, e.Name); old == nil || !equality.Semantic.DeepEqual(*old, e) {
			names = append(names, e.Name)
		}
	}
	for _, e := range was {
		if find(is, e.Name) == nil {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return names
}

func contains(all, part map[string]string) bool {
	for key, value := range part {
		if all[key] != value {
			return false
		}
	}
	return true
}

// without removes the annotations that have a sentence of their own.
func without(annotations map[string]string) map[string]string {
	rest := maps.Clone(annotations)
	delete(rest, annotationAuth)
	delete(rest, annotationTrust)
	delete(rest, v1alpha1.AnnotationRestart)
	return rest
}
