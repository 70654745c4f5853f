package jsapi

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/carillon-mq/carillon/broker/publish"
)

// TestRepliesOfFastBatches: as nats-server reads them.
func TestRepliesOfFastBatches(t *testing.T) {
	part := func(sequence uint64, flow uint16, gaps bool, op publish.FastOp) *publish.FastPart {
		return &publish.FastPart{Batch: []byte("id"), Sequence: sequence, Flow: flow, GapOK: gaps, Op: op}
	}
	for reply, want := range map[string]*publish.FastPart{
		"_INBOX.id.100.fail.1.0.$FI":                  part(1, 100, false, publish.FastMessage),
		"a.b.id.100.ok.7.1.$FI":                       part(7, 100, true, publish.FastMessage),
		"_INBOX.id.65536.fail.7.2.$FI":                part(7, 65535, false, publish.FastCommit),
		"_INBOX.id.0.fail.1.2.$FI":                    part(1, 10, false, publish.FastCommit),
		"_INBOX.id.x.fail.7.3.$FI":                    part(7, 10, false, publish.FastEnd),
		"_INBOX.id.1.fail.1.4.$FI":                    part(1, 1, false, publish.FastPing),
		"_INBOX.id.1.fail.2.0.$FI":                    nil,
		"_INBOX.id.1.fail.1.1.$FI":                    nil,
		"_INBOX.id.1.fail.1.3.$FI":                    nil,
		"_INBOX.id.1.fail.0.4.$FI":                    nil,
		"_INBOX.id.1.maybe.1.0.$FI":                   nil,
		"_INBOX.id.1.fail.1.5.$FI":                    nil,
		"_INBOX.id.1.fail.1..$FI":                     nil,
		"_INBOX.id.1.fail.-1.1.$FI":                   nil,
		"id.1.fail.1.0.$FI":                           nil,
		".$FI":                                        nil,
		"_INBOX.id.1.fail.99999999999999999999.1.$FI": nil,
	} {
		got, ok := ParseFast([]byte(reply), nil)
		if !ok || got.Invalid != (want == nil) || want != nil && !reflect.DeepEqual(got, *want) {
			t.Errorf("%s is %+v, %v", reply, got, ok)
		}
	}
	for _, reply := range []string{"", "$FI", "_INBOX.id", "_INBOX.id.1.fail.1.0.$FI.x", "_INBOX.id.1.fail.1.0.$fi"} {
		if got, ok := ParseFast([]byte(reply), nil); ok {
			t.Errorf("%s is %+v", reply, got)
		}
	}
	if got, _ := ParseFast([]byte("_INBOX.id.1.fail.1.0.$FI"), header("Nats-Required-Api-Level: 99")); !got.Unserved || got.Invalid || got.Strip != "Nats-Required-Api-Level" {
		t.Errorf("with a high level it is %+v", got)
	}
}

// TestAnswersOfFastBatches are JSON as nats-server's.
func TestAnswersOfFastBatches(t *testing.T) {
	refusal := AppendPubRefusal(nil, `or"ders`, ErrStreamSealed)
	for want, got := range map[string][]byte{
		`{"type":"ack","seq":7,"msgs":500}`:   AppendFlowAck(nil, 7, 500),
		`{"type":"gap","last_seq":3,"seq":5}`: AppendFlowGap(nil, 3, 5),
		`{"type":"err","seq":3,"error":{"code":400,"err_code":10109,"description":"invalid operation on sealed stream"}}`: AppendFlowError(nil, 3, refusal),
		`{"type":"err","seq":3,"error":null}`: AppendFlowError(nil, 3, nil),
	} {
		if string(got) != want || !json.Valid(got) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
