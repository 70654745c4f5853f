package jsapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/coordination"
)

func TestSubjectsOfTheAPI(t *testing.T) {
	for subject, want := range map[string]string{
		"INFO":                            "1 ",
		"STREAM.CREATE.S":                 "2 S",
		"STREAM.UPDATE.S":                 "3 S",
		"STREAM.INFO.S":                   "4 S",
		"STREAM.DELETE.S":                 "5 S",
		"STREAM.PURGE.S":                  "6 S",
		"STREAM.NAMES":                    "7 ",
		"STREAM.LIST":                     "8 ",
		"STREAM.MSG.GET.S":                "9 S",
		"STREAM.MSG.DELETE.S":             "10 S",
		"DIRECT.GET.S":                    "11 S",
		"DIRECT.GET.S.$KV.bucket.key":     "12 S filter $KV.bucket.key",
		"CONSUMER.CREATE.S":               "13 S",
		"CONSUMER.CREATE.S.c":             "13 S c",
		"CONSUMER.CREATE.S.c.orders.*.eu": "13 S c filter orders.*.eu",
		"CONSUMER.DURABLE.CREATE.S.c":     "14 S c",
		"CONSUMER.INFO.S.c":               "15 S c",
		"CONSUMER.DELETE.S.c":             "16 S c",
		"CONSUMER.NAMES.S":                "17 S",
		"CONSUMER.LIST.S":                 "18 S",
		"CONSUMER.MSG.NEXT.S.c":           "19 S c",
		"INFO.S":                          "0 ",
		"STREAM":                          "0 ",
		"STREAM.NAMES.S":                  "0 ",
		"STREAM.INFO":                     "0 ",
		"STREAM.INFO.":                    "0 ",
		"STREAM.INFO.S.more":              "0 ",
		"STREAM.SNAPSHOT.S":               "27 S",
		"STREAM.LEADER.STEPDOWN.S":        "23 S",
		"STREAM.PEER.REMOVE.S":            "24 S",
		"STREAM.PEER.EVACUATE.S":          "25 S",
		"STREAM.CANCEL_MOVE.S":            "26 S",
		"STREAM.RESTORE.S":                "28 S",
		"STREAM.LEADER.S":                 "0 ",
		"STREAM.PEER.STEPDOWN.S":          "0 ",
		"CONSUMER.LEADER.STEPDOWN.S.c":    "29 S c",
		"CONSUMER.PEER.REMOVE.S.c":        "30 S c",
		"CONSUMER.PEER.EVACUATE.S.c":      "31 S c",
		"CONSUMER.PEER.REMOVE.S":          "0 ",
		"SERVER.REMOVE":                   "33 ",
		"STREAM.MSG.GET":                  "0 ",
		"DIRECT.GET":                      "0 ",
		"DIRECT.GET..x":                   "0 ",
		"DIRECT.GET.S.":                   "0 ",
		"CONSUMER.CREATE":                 "0 ",
		"CONSUMER.CREATE.S.":              "0 ",
		"CONSUMER.CREATE.S.c.":            "0 ",
		"CONSUMER.DURABLE.CREATE.S":       "0 ",
		"CONSUMER.MSG.NEXT.S":             "0 ",
		"CONSUMER.MSG.NEXT.S.c.d":         "0 ",
		"CONSUMER.PAUSE.S.c":              "20 S c",
		"CONSUMER.RESET.S.c":              "21 S c",
		"CONSUMER.UNPIN.S.c":              "22 S c",
		"META.LEADER.STEPDOWN":            "32 ",
		"META.RESCUE":                     "0 ",
	} {
		r, ok := ParseSubject([]byte(APIPrefix + subject))
		got := strings.TrimRight(fmt.Sprintf("%d %s %s", r.Call, r.Stream, r.Consumer), " ")
		if len(r.Filter) > 0 {
			got = strings.Join(strings.Fields(got+" filter "+string(r.Filter)), " ")
		}
		if !ok || got != strings.TrimRight(want, " ") {
			t.Errorf("%s: %q %v, want %q", subject, got, ok, want)
		}
	}
	for _, subject := range []string{"", "$JS.API.", "$JS.API", "$JS.hub.API.INFO", "$JS.ACK.S", "orders"} {
		if r, ok := ParseSubject([]byte(subject)); ok {
			t.Errorf("%q is taken for %+v", subject, r)
		}
	}
}

func FuzzSubject(f *testing.F) {
	for _, s := range []string{"$JS.API.INFO", "$JS.API.CONSUMER.CREATE.S.c.a.>", "$JS.API.DIRECT.GET.S.k", "$JS.API.CONSUMER.MSG.NEXT.S.c", "$JS.API."} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, subject []byte) {
		r, ok := ParseSubject(subject)
		if !ok && r.Call != Unknown || slices.Contains(r.Stream, '.') || slices.Contains(r.Consumer, '.') {
			t.Errorf("%q: %+v", subject, r)
		}
		if len(r.Consumer) > 0 && len(r.Stream) == 0 || r.Call == Unknown && len(r.Stream) > 0 {
			t.Errorf("%q: %+v", subject, r)
		}
	})
}

func TestRequestsInJSON(t *testing.T) {
	if r, err := Decode[PageRequest](nil); err != nil || r.Offset != 0 {
		t.Errorf("nothing: %+v %v", r, err)
	}
	if r, err := Decode[PageRequest]([]byte(" {\"offset\":5,\"subject\":\"a\"}\n")); err != nil || r.Offset != 5 || r.Subject != "a" {
		t.Errorf("a page: %+v %v", r, err)
	}
	for _, payload := range []string{"{", "[]", `{"offset":"x"}`, `{"page":1}`, `{}{}`, `{} x`} {
		if _, err := Decode[PageRequest]([]byte(payload)); err == nil || err.ErrCode != 10025 {
			t.Errorf("%s: %v", payload, err)
		}
	}
	for payload, good := range map[string]bool{
		`{"seq":1}`: true, `{"last_by_subj":"a"}`: true, `{"next_by_subj":"a"}`: true, `{"seq":4,"next_by_subj":"a"}`: true,
		`{"start_time":"2026-01-02T03:04:05Z"}`: true, `{"seq":1,"no_hdr":true}`: true,
		`{}`: false, `{"seq":1,"last_by_subj":"a"}`: false, `{"batch":2,"seq":1}`: false, `{"multi_last":["a"]}`: false,
		`{"last_by_subj":"a","next_by_subj":"b"}`: false, `{"seq":1,"start_time":"2026-01-02T03:04:05Z"}`: false,
	} {
		r, err := Decode[GetRequest]([]byte(payload))
		if err != nil {
			t.Fatal(payload, err)
		}
		if (r.Check() == nil) != good {
			t.Errorf("%s: %v", payload, r.Check())
		}
	}
	if r := (PurgeRequest{Sequence: 1, Keep: 1}); r.Check() == nil {
		t.Error("a purge that keeps and doesn't")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"S","max_age":1000000000,"subjects":["a"]}`))
	f.Add([]byte(`{"stream_name":"S","config":{"durable_name":"c","backoff":[1]},"action":"create"}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if r, err := Decode[StreamRequest](payload); err == nil && r.Normalize() == nil {
			spec := r.TopicSpec()
			again := StreamOf(r.Name, &spec)
			x, errX := json.Marshal(again)
			y, errY := json.Marshal(r.StreamConfig)
			if errX != nil || errY != nil || string(x) != string(y) {
				t.Errorf("%s:\n%s %v\n%s %v", payload, x, errX, y, errY)
			}
		}
		stream := StreamConfig{Name: "S", Replicas: 1}
		if r, err := Decode[ConsumerRequest](payload); err == nil && r.Config.Normalize(&stream) == nil && r.Config.Durable != "" {
			spec := r.Config.SubscriptionSpec()
			if again := ConsumerOf(r.Config.Name, &spec); !again.Equal(&r.Config) {
				t.Errorf("%s:\n%+v\n%+v", payload, again, r.Config)
			}
		}
	})
}

func TestPagesCoverEverythingOnce(t *testing.T) {
	all := make([]int, 600)
	for i := range all {
		all[i] = i
	}
	var got []int
	for offset := 0; ; {
		page, paged := Page(all, offset, ListPage)
		if paged != (Paged{600, offset, 256}) {
			t.Fatalf("%+v", paged)
		}
		got = append(got, page...)
		if offset += len(page); offset >= paged.Total {
			break
		}
	}
	if !slices.Equal(got, all) {
		t.Errorf("%d of %d", len(got), len(all))
	}
	for _, offset := range []int{-1, 600, 1 << 60} {
		page, paged := Page(all, offset, ListPage)
		if data, _ := json.Marshal(page); paged.Offset < 0 || paged.Offset > 600 || offset > 0 && string(data) != "[]" {
			t.Errorf("from %d: %+v %s", offset, paged, data)
		}
	}
}

// TestClientsReadTheAnswers: nats.go decodes stream and consumer infos, and the types of answers
// are jsm.go's.
func TestClientsReadTheAnswers(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	stream := told[jetstream.StreamInfo](t, StreamResponse{Response: StreamCreate.Answer(), DidCreate: true, StreamInfo: &StreamInfo{
		Config: *ordersStream(t, ConsumerLimits{}), Created: now, TimeStamp: now, Cluster: &ClusterInfo{Leader: "main-0"},
		State: StreamState{Messages: 3, Bytes: 4, FirstSeq: 5, LastSeq: 7, FirstTime: now, LastTime: now, Consumers: 1, NumSubjects: 2, Subjects: map[string]uint64{"a": 1}},
	}})
	if stream.Config.Name != "ORDERS" || stream.State.Msgs != 3 || stream.State.LastSeq != 7 || stream.State.Subjects["a"] != 1 || stream.Cluster.Leader != "main-0" || !stream.Created.Equal(now) {
		t.Errorf("%+v", stream)
	}
	consumer := told[jetstream.ConsumerInfo](t, ConsumerResponse{ConsumerCreate.Answer(), &ConsumerInfo{
		Stream: "ORDERS", Name: "c", Created: now, Delivered: SequenceInfo{2, 3, &now}, NumPending: 4, NumAckPending: 1,
		Config: ConsumerOf("c", &coordination.SubscriptionSpec{}),
	}})
	if consumer.Stream != "ORDERS" || consumer.Delivered.Stream != 3 || consumer.NumPending != 4 || !consumer.Delivered.Last.Equal(now) {
		t.Errorf("%+v", consumer)
	}
	account := told[jetstream.AccountInfo](t, AccountResponse{AccountInfo.Answer(), &Account{Streams: 2, Limits: NoAccountLimits, API: APIStats{Level: APILevel, Total: 9}}})
	if account.Streams != 2 || account.Limits.MaxStreams != -1 || account.API.Total != 9 {
		t.Errorf("%+v", account)
	}
	for call, want := range map[Call]string{
		ConsumerNames: "consumer_names_response", ConsumerDurable: "consumer_create_response", MessageGet: "stream_msg_get_response", Unknown: "system_response",
	} {
		if got := call.Answer().Type; got != "io.nats.jetstream.api.v1."+want {
			t.Errorf("%d: %s", call, got)
		}
	}
	if DirectGet.ResponseType() != "" || ConsumerNext.ResponseType() != "" || Call(200).ResponseType() != "" {
		t.Error("answers by messages have no type")
	}
}
