package jsapi

import (
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

func TestClientsReadTheAckSubject(t *testing.T) {
	kept := time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC)
	d := Delivery{[]byte("ORDERS"), []byte("billing"), 2, 41, 57, kept.UnixNano(), 9}
	subject := string(d.AppendSubject(nil))
	if want := "$JS.ACK.ORDERS.billing.2.41.57.1772600767000000089.9"; subject != want {
		t.Fatalf("%s, want %s", subject, want)
	}
	message := nats.Msg{Sub: &nats.Subscription{}, Reply: subject}
	meta, err := message.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	if meta.Stream != "ORDERS" || meta.Consumer != "billing" || meta.NumDelivered != 2 || meta.Sequence.Stream != 41 ||
		meta.Sequence.Consumer != 57 || meta.NumPending != 9 || !meta.Timestamp.Equal(kept) {
		t.Errorf("nats.go reads %+v", meta)
	}
}

func TestAckSubjectsComeBack(t *testing.T) {
	name := rapid.StringMatching(`[A-Za-z0-9_-]{1,20}`)
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Uint64()
		d := Delivery{
			[]byte(name.Draw(t, "stream")), []byte(name.Draw(t, "consumer")), number.Draw(t, "delivered"), number.Draw(t, "stream seq"),
			number.Draw(t, "consumer seq"), rapid.Int64Min(0).Draw(t, "time"), number.Draw(t, "pending"),
		}
		subject := d.AppendSubject(nil)
		got, ok := ParseAckSubject(subject)
		if !ok || string(got.AppendSubject(nil)) != string(subject) || got.Pending != d.Pending || got.Time != d.Time {
			t.Fatalf("%s: %+v, %v", subject, got, ok)
		}
	})
}

func TestStrangeAckSubjects(t *testing.T) {
	for _, subject := range []string{
		"", "$JS.ACK.", "$JS.ACK.S.C", "$JS.ACK.S.C.1.2.3.4", "$JS.ACK.S.C.1.2.3.4.5.6", "$JS.ACK..C.1.2.3.4.5", "$JS.ACK.S..1.2.3.4.5",
		"$JS.ACK.S.C.1.2.3.4.", "$JS.ACK.S.C.1.-2.3.4.5", "$JS.ACK.S.C.1.2.3.4.99999999999999999999", "$JS.ACK.S.C.1.2.3.18446744073709551615.5",
		"$JS.ACK.hub.hash.S.C.1.2.3.4.5.random", "$JS.FC.S.C.1.2.3.4.5",
	} {
		if d, ok := ParseAckSubject([]byte(subject)); ok {
			t.Errorf("%q is taken for %+v", subject, d)
		}
	}
}

func TestAckPayloads(t *testing.T) {
	for payload, want := range map[string]Ack{
		"":                          {Kind: AckDone},
		"+ACK":                      {Kind: AckDone},
		"+OK":                       {Kind: AckDone},
		"+WPI":                      {Kind: AckProgress},
		"-NAK":                      {Kind: AckRetry},
		"-NAK 1.5s":                 {Kind: AckRetry, Delay: 1500 * time.Millisecond},
		`-NAK {"delay": 250000000}`: {Kind: AckRetry, Delay: 250 * time.Millisecond},
		`-NAK {"delay": -1}`:        {Kind: AckRetry},
		`-NAK {"delay"`:             {Kind: AckRetry},
		"-NAK soon":                 {Kind: AckRetry},
		"+NXT":                      {Kind: AckNext},
		"+NXT 5":                    {Kind: AckNext, Next: []byte("5")},
		`+NXT {"batch":3}`:          {Kind: AckNext, Next: []byte(`{"batch":3}`)},
		"+TERM":                     {Kind: AckTerm},
		"+TERM no such customer":    {Kind: AckTerm, Reason: []byte("no such customer")},
		"+ACK now":                  {},
		"hello":                     {},
	} {
		got := ParseAck([]byte(payload))
		if got.Kind != want.Kind || got.Delay != want.Delay || string(got.Next) != string(want.Next) || string(got.Reason) != string(want.Reason) {
			t.Errorf("%q: %+v, want %+v", payload, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "007": 7, "18446744073709551615": math.MaxUint64} {
		if n, ok := ParseUint([]byte(text)); !ok || n != want {
			t.Errorf("%s: %d, %v", text, n, ok)
		}
	}
	for _, text := range []string{"", "-1", "+1", "1e3", " 1", "18446744073709551616", "184467440737095516150"} {
		if n, ok := ParseUint([]byte(text)); ok {
			t.Errorf("%q is taken for %d", text, n)
		}
	}
}

func FuzzAck(f *testing.F) {
	f.Add([]byte("$JS.ACK.S.C.1.2.3.4.5"), []byte("-NAK 1s"))
	f.Add([]byte("$JS.ACK.S.C.1.2.3.4.5.6"), []byte(`-NAK {"delay":1}`))
	f.Fuzz(func(t *testing.T, subject, payload []byte) {
		if d, ok := ParseAckSubject(subject); ok {
			again, ok := ParseAckSubject(d.AppendSubject(nil))
			if !ok || again.StreamSeq != d.StreamSeq || string(again.Consumer) != string(d.Consumer) {
				t.Errorf("%q: %+v, then %+v", subject, d, again)
			}
		}
		if a := ParseAck(payload); a.Delay < 0 {
			t.Errorf("%q: delay %v", payload, a.Delay)
		}
	})
}
