package plan

import (
	"strings"
	"testing"
	"time"
)

func TestACertificateIsReportedInTime(t *testing.T) {
	const day = 24 * time.Hour
	end := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		life, left time.Duration
		want       Reason
	}{
		{90 * day, 90 * day, ""},
		{90 * day, 7*day + 1, ""},
		{90 * day, 7 * day, CertificateExpiresSoon},
		{90 * day, 0, CertificateExpiresSoon},
		{90 * day, -1, CertificateExpired},
		{90 * day, -900 * day, CertificateExpired},
		{day, 8 * time.Hour, ""}, // cert-manager is about to renew it
		{day, 6 * time.Hour, CertificateExpiresSoon},
	} {
		is := ClientCertificates{Known: true, All: []ClientCertificate{{What: "the one in Secret theirs", Means: "so on",
			Renew: "renew it", NotBefore: end.Add(-c.life), NotAfter: end}}}
		got, says := Expiry(is, end.Add(-c.left))
		full := strings.HasPrefix(says, "the one in Secret theirs expire") &&
			strings.Contains(says, " at 2027-03-01T12:00:00Z, and so on") && strings.HasSuffix(says, ": renew it")
		if got != c.want || full != (got != "") {
			t.Errorf("%s of %s left: %q, %q; want %q", c.left, c.life, got, says, c.want)
		}
	}
	if got, says := Expiry(ClientCertificates{Known: true}, end); got != "" || says != "" {
		t.Errorf("without a certificate: %q, %q", got, says)
	}
}

// TestAllCertificatesOfABrokerAreJudged: the worst one decides the reason, one that ends early
// hides no other, and the message is bounded.
func TestAllCertificatesOfABrokerAreJudged(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	of := func(what string, left time.Duration) ClientCertificate {
		return ClientCertificate{What: what, Means: "so on", Renew: "renew it", NotBefore: now.Add(-1000 * day), NotAfter: now.Add(left)}
	}
	many := []ClientCertificate{of("first", day)}
	for range 100 {
		many = append(many, of(strings.Repeat("x", 100), -day))
	}
	for _, c := range []struct {
		all      []ClientCertificate
		want     Reason
		begins   string
		contains string
	}{
		{[]ClientCertificate{of("leaf", 90*day), of("between", 8*day)}, "", "", ""},
		{[]ClientCertificate{of("leaf", 90*day), of("between", day)}, CertificateExpiresSoon, "between expires at", ""},
		{[]ClientCertificate{of("leaf", day), of("between", -900*day)}, CertificateExpired, "leaf expires at", "; between expired at"},
		{[]ClientCertificate{of("leaf", -day), of("between", day)}, CertificateExpired, "leaf expired at", "; between expires at"},
		{many, CertificateExpired, "first expires at", "; and 97 more"},
	} {
		got, says := Expiry(ClientCertificates{Known: true, All: c.all}, now)
		if got != c.want || !strings.HasPrefix(says, c.begins) || !strings.Contains(says, c.contains) || (says == "") != (c.want == "") || len(says) > 1000 {
			t.Errorf("%q, %q; want %q, %q … %q", got, says, c.want, c.begins, c.contains)
		}
	}
}
