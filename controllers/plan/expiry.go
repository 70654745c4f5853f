package plan

import (
	"fmt"
	"time"
)

// expiresSoon is how long before its end a certificate of others is reported: a person needs days
// to get another one. Of a short-lived certificate it is a quarter of its life: cert-manager renews
// when a third is left, so then the renewal is overdue.
const expiresSoon = 7 * 24 * time.Hour

// ClientCertificate is the certificate that clients see, if others renew it.
type ClientCertificate struct {
	// Known reports that the pass has looked. What it found is the zero value where the operator
	// renews the certificate itself, or there is no usable one.
	Known bool
	// What names the Secret, and Renew says what to do for another certificate.
	What, Renew         string
	NotBefore, NotAfter time.Time
}

// Expiry returns why a person has to look after the certificate; an empty reason: nobody has to.
// The message is the same until the reason changes, so that nothing is written meanwhile.
func Expiry(c ClientCertificate, now time.Time) (Reason, string) {
	if c.NotAfter.IsZero() {
		return "", ""
	}
	at := c.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case now.After(c.NotAfter):
		return CertificateExpired, fmt.Sprintf(
			"the certificate in %s expired at %s, and clients refuse it: %s", c.What, at, c.Renew)
	case c.NotAfter.Sub(now) <= min(expiresSoon, c.NotAfter.Sub(c.NotBefore)/4):
		return CertificateExpiresSoon, fmt.Sprintf(
			"the certificate in %s expires at %s, and clients refuse it then: %s", c.What, at, c.Renew)
	}
	return "", ""
}
