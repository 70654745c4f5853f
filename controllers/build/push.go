package build

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
)

// push returns the endpoint that a manifest asks for, or nil.
func push(subscription *v1alpha1.Subscription) (*coordination.Push, error) {
	if subscription.Spec.Delivery == nil {
		return nil, nil
	}
	asked := &subscription.Spec.Delivery.Push
	p := &coordination.Push{
		URL: asked.URL, Format: coordination.PushFormat(asked.Format), Concurrency: int(asked.Concurrency),
	}
	if asked.ServiceRef != nil {
		p.URL = serviceURL(asked.ServiceRef, subscription.Namespace)
	}
	var err error
	if p.Timeout, err = duration("delivery.push.timeout", asked.Timeout); err != nil {
		return nil, err
	}
	if b := asked.Batch; b != nil {
		p.Batch = &coordination.PushBatch{MaxRecords: int(b.MaxRecords), MaxBytes: int(b.MaxBytes)}
		if p.Batch.MaxWait, err = duration("delivery.push.batch.maxWait", b.MaxWait); err != nil {
			return nil, err
		}
	}
	for _, h := range asked.Headers {
		header := coordination.PushHeader{Name: h.Name, Value: h.Value}
		if h.ValueFrom != nil {
			header.File = PushFile(h.ValueFrom.SecretKeyRef)
		}
		p.Headers = append(p.Headers, header)
	}
	if t := asked.TLS; t != nil {
		p.TLS = &coordination.PushTLS{ServerName: t.ServerName}
		if t.CASecretRef != nil {
			p.TLS.CA = PushFile(*t.CASecretRef)
		}
		if t.CertificateSecretRef != nil {
			certificate, key := pair(t.CertificateSecretRef)
			p.TLS.Certificate, p.TLS.Key = PushFile(certificate), PushFile(key)
		}
	}
	if why := p.Valid(); why != "" {
		return nil, fmt.Errorf("delivery: %s", why)
	}
	return p, nil
}

// PushFile returns the key of the brokers' Secret with a value that Subscriptions refer to. The
// name of a Secret has no underscore, so no two values share a key.
func PushFile(ref v1alpha1.SecretKeyReference) string { return ref.Name + "_" + ref.Key }

// pair returns where the certificate and the key of a Secret of the type kubernetes.io/tls are.
func pair(ref *v1alpha1.SecretReference) (certificate, key v1alpha1.SecretKeyReference) {
	return v1alpha1.SecretKeyReference{Name: ref.Name, Key: corev1.TLSCertKey}, v1alpha1.SecretKeyReference{Name: ref.Name, Key: corev1.TLSPrivateKeyKey}
}

const (
	// maxPushValues and maxPushBytes bound what push Subscriptions of one Broker refer to: a Secret
	// has at most 1 MiB. maxPushValue bounds one of them, as brokers do.
	maxPushValues = 1000
	maxPushBytes  = 768 << 10
	maxPushValue  = 256 << 10
)

// PushData returns the content of the brokers' Secret: of the values, in that order of files, what
// it has room for. What is there already, in was, goes first, so that a new value displaces none. A
// value that is too large takes no room.
func PushData(files []string, values, was map[string][]byte) map[string][]byte {
	data, bytes := map[string][]byte{}, 0
	for rank := range 3 {
		for _, file := range files {
			value, ok := values[file]
			old, there := was[file]
			of := 2
			if there && len(value) <= len(old) {
				of = 0
			} else if there {
				of = 1
			}
			if !ok || of != rank || len(value) > maxPushValue || bytes+len(value) > maxPushBytes || len(data) >= maxPushValues {
				continue
			}
			bytes += len(value)
			data[file] = value
		}
	}
	return data
}

// PushSecrets returns what a Subscription refers to in Secrets.
func PushSecrets(subscription *v1alpha1.Subscription) (refs []v1alpha1.SecretKeyReference) {
	if subscription.Spec.Delivery == nil {
		return nil
	}
	push := &subscription.Spec.Delivery.Push
	for _, h := range push.Headers {
		if h.ValueFrom != nil {
			refs = append(refs, h.ValueFrom.SecretKeyRef)
		}
	}
	if push.TLS != nil && push.TLS.CASecretRef != nil {
		refs = append(refs, *push.TLS.CASecretRef)
	}
	if push.TLS != nil && push.TLS.CertificateSecretRef != nil {
		certificate, key := pair(push.TLS.CertificateSecretRef)
		refs = append(refs, certificate, key)
	}
	return refs
}

// serviceURL returns the URL of a Service as pods of the cluster resolve it.
func serviceURL(ref *v1alpha1.ServiceReference, namespace string) string {
	if ref.Namespace != "" {
		namespace = ref.Namespace
	}
	u := url.URL{Scheme: ref.Scheme, Host: ref.Name + "." + namespace + ".svc"}
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	if ref.Port != nil {
		u.Host = net.JoinHostPort(u.Host, strconv.Itoa(int(*ref.Port)))
	}
	path, query, _ := strings.Cut(ref.Path, "?")
	u.Path, u.RawQuery = path, query
	if u.Path == "" {
		u.Path = "/"
	}
	return u.String()
}
