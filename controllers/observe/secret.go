package observe

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/build"
)

// Secret reads the data of one of our own Secrets; nil: it does not exist. If the cache has none,
// the API server is asked, since a CA that the cache does not have yet must not be created again.
func Secret(ctx context.Context, cache, live client.Reader, namespace, name string) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	err := cache.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		err = live.Get(ctx, key, secret)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting Secret %s: %w", name, err)
	}
	return secret.Data, nil
}

// Auth reads the Secret that spec.auth names. If the Secret is missing or unusable, trouble has the
// reason and what to do; the user may create it later. fingerprint returns a value that may be
// shown for its content.
func Auth(ctx context.Context, live client.Reader, broker *v1alpha1.Broker, fingerprint func(...[]byte) string) (auth build.Auth, trouble string, err error) {
	if broker.Spec.Auth == nil {
		return build.Auth{}, "", nil
	}
	if broker.Spec.Auth.SecretRef == nil {
		return build.Auth{Form: build.AuthUsers}, "", nil
	}
	name := broker.Spec.Auth.SecretRef.Name
	secret := &corev1.Secret{}
	err = live.Get(ctx, client.ObjectKey{Namespace: broker.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return build.Auth{}, fmt.Sprintf("Secret %s, which spec.auth.secretRef names, does not exist: make it with the keys username and password, or with the key token", name), nil
	}
	if err != nil {
		return build.Auth{}, "", fmt.Errorf("getting Secret %s, which spec.auth.secretRef names: %w", name, err)
	}
	has := func(keys ...string) bool {
		return !slices.ContainsFunc(keys, func(key string) bool { return len(secret.Data[key]) == 0 })
	}
	user, token := has(build.KeyUsername, build.KeyPassword), has(build.KeyToken)
	auth = build.Auth{Secret: name}
	switch {
	case user && token:
		return build.Auth{}, fmt.Sprintf("Secret %s, which spec.auth.secretRef names, has username and password and also token: leave one of the two", name), nil
	case user:
		auth.Form = build.AuthUserPassword
		auth.Fingerprint = fingerprint([]byte(name), secret.Data[build.KeyUsername], secret.Data[build.KeyPassword])
	case token:
		auth.Form = build.AuthToken
		auth.Fingerprint = fingerprint([]byte(name), secret.Data[build.KeyToken])
	default:
		return build.Auth{}, fmt.Sprintf("Secret %s, which spec.auth.secretRef names, lacks the keys username and password, or the key token: add them", name), nil
	}
	return auth, "", nil
}
