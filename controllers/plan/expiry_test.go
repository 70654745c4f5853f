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
		is := ClientCertificate{What: "Secret theirs", Renew: "renew it",
			NotBefore: end.Add(-c.life), NotAfter: end}
		got, says := Expiry(is, end.Add(-c.left))
		full := strings.Contains(says, "in Secret theirs expire") &&
			strings.Contains(says, "2027-03-01T12:00:00Z") && strings.HasSuffix(says, ": renew it")
		if got != c.want || full != (got != "") {
			t.Errorf("%s of %s left: %q, %q; want %q", c.left, c.life, got, says, c.want)
		}
	}
	if got, says := Expiry(ClientCertificate{Known: true}, end); got != "" || says != "" {
		t.Errorf("without a certificate: %q, %q", got, says)
	}
}
