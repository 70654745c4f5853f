package plan

import (
	"fmt"
	"strings"
	"time"
)

const (
	// expiresSoon is how long before its end a certificate of others is reported: a person needs days
	// to get another one. Of a short-lived certificate it is a quarter of its life: cert-manager
	// renews when a third is left, so then the renewal is overdue.
	expiresSoon = 7 * 24 * time.Hour
	// maxExpiries is how many certificates a message names: a bundle may have hundreds.
	maxExpiries = 4
)

// ClientCertificates are the certificates of spec.tls that others renew.
type ClientCertificates struct {
	// Known reports that the pass has looked. All is empty where the operator renews the certificate
	// itself, or there is no usable one.
	Known bool
	// All are in the order of their importance: what the message names first.
	All []ClientCertificate
}

// ClientCertificate is one of them.
type ClientCertificate struct {
	// What names the certificate and its Secret, Means says what its end means, and Renew what to do
	// for another one.
	What, Means, Renew  string
	NotBefore, NotAfter time.Time
}

// Expiry returns why a person has to look after certificates; an empty reason: nobody has to. The
// message is the same until the reason or the certificates change, so that nothing is written
// meanwhile.
func Expiry(of ClientCertificates, now time.Time) (reason Reason, message string) {
	var texts []string
	more := 0
	for i := range of.All {
		c := &of.All[i]
		verb, then := "", ""
		switch {
		case now.After(c.NotAfter):
			reason, verb = CertificateExpired, "expired"
		case c.NotAfter.Sub(now) <= min(expiresSoon, c.NotAfter.Sub(c.NotBefore)/4):
			verb, then = "expires", " then"
			if reason == "" {
				reason = CertificateExpiresSoon
			}
		default:
			continue
		}
		if len(texts) == maxExpiries {
			more++
			continue
		}
		texts = append(texts, fmt.Sprintf(
			"%s %s at %s, and %s%s: %s", c.What, verb, c.NotAfter.UTC().Format(time.RFC3339), c.Means, then, c.Renew))
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return reason, strings.Join(texts, "; ")
}
