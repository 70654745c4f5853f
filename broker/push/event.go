package push

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
)

const (
	// eventType is the type of an event whose record does not say what it is.
	eventType     = "dev.carillon.record"
	contentType   = "Content-Type"
	unknownData   = "application/octet-stream"
	structured    = "application/cloudevents+json; charset=utf-8"
	batched       = "application/cloudevents-batch+json; charset=utf-8"
	eventHeader   = "ce-"   // before the names of attributes in headers
	longValue     = 1 << 10 // the longest value of an attribute that a record brings: servers bound headers
	longExtension = 20      // the longest name of an extension that CloudEvents recommend
)

// origin says where records come from.
type origin struct {
	cluster string // namespace/name of the Broker
	topic   string // name of the stream
	key     string // of the shard: it never names another one
}

// source is the source of events.
func (o origin) source() string { return "/carillon/" + o.cluster + "/topics/" + o.topic }

// id is the same for each attempt of a record, and for no other record.
func (o origin) id(offset uint64) string { return o.key + "/" + strconv.FormatUint(offset, 10) }

// encode returns the header and the body of a request with these records. Without a batch of the
// spec there is one record.
func encode(push *coordination.Push, of origin, records []*item) (http.Header, []byte) {
	header := http.Header{}
	switch {
	case push.Batch != nil:
		header.Set(contentType, batched)
		var body bytes.Buffer
		body.WriteByte('[')
		for n, r := range records {
			if n > 0 {
				body.WriteByte(',')
			}
			writeJSON(&body, eventOf(of, r))
		}
		body.WriteByte(']')
		return header, body.Bytes()
	case push.Format == coordination.CloudEventsStructured:
		header.Set(contentType, structured)
		var body bytes.Buffer
		writeJSON(&body, eventOf(of, records[0]))
		return header, body.Bytes()
	case push.Format == coordination.RawPush:
		return raw(header, of, records[0])
	}
	e := eventOf(of, records[0])
	header.Set("Ce-Specversion", e.SpecVersion())
	header.Set("Ce-Id", escape(e.ID()))
	header.Set("Ce-Source", escape(e.Source()))
	header.Set("Ce-Type", escape(e.Type()))
	header.Set("Ce-Time", e.Time().Format(time.RFC3339Nano))
	header.Set(contentType, e.DataContentType())
	if s := e.Subject(); s != "" {
		header.Set("Ce-Subject", escape(s))
	}
	if s := e.DataSchema(); s != "" {
		header.Set("Ce-Dataschema", escape(s))
	}
	size := 0
	for name, values := range header {
		size += len(name) + len(values[0])
	}
	extensions := e.Extensions()
	for _, name := range slices.Sorted(maps.Keys(extensions)) {
		value := escape(fmt.Sprint(extensions[name]))
		if size+len(eventHeader)+len(name)+len(value) > rawHeader && name != "sequence" {
			continue
		}
		size += len(eventHeader) + len(name) + len(value)
		header.Set(eventHeader+name, value)
	}
	return header, e.Data()
}

// escapedSize returns how long a JSON string of that text is.
func escapedSize(text []byte) (size int) {
	for _, c := range string(text) {
		switch {
		case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
			size += 2
		case c < ' ', c == 0x7f, c == '<', c == '>', c == '&', c == '\u2028', c == '\u2029':
			size += 6
		default:
			size += utf8.RuneLen(c)
		}
	}
	return size
}

// writeJSON writes an event that eventOf returned.
func writeJSON(body *bytes.Buffer, e *event.Event) {
	if err := event.WriteJson(e, body); err != nil {
		panic(err) // the SDK fails for events that eventOf never makes, and for writers that fail
	}
}

// eventOf returns a record as an event.
//
//  1. A record that is a CloudEvent in the binary mode of the NATS binding (headers ce-*) keeps its
//     attributes.
//  2. Of others, the id is the shard's with the offset, the source the Topic, the subject the
//     record's. The type is dev.carillon.record.
//  3. Headers whose names are letters and digits become extensions, in lower case. Others can't be
//     attributes, and are left out.
func eventOf(of origin, r *item) *event.Event {
	e := event.New(event.CloudEventsVersionV1)
	header, payload := protocol.SplitData(r.data, r.header)
	own, is := header.Get(eventHeader + "specversion")
	is = is && string(own) == event.CloudEventsVersionV1
	e.SetID(of.id(r.offset))
	e.SetSource(of.source())
	e.SetType(eventType)
	e.SetSubject(r.subject)
	e.SetTime(time.Unix(0, r.time).UTC())
	e.SetExtension("sequence", fmt.Sprintf("%020d", r.offset))
	data := unknownData
	for key, raw := range header.All() {
		name, value := strings.ToLower(string(key)), strings.ToValidUTF8(string(raw), "\uFFFD")
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			continue
		}
		name, attribute := strings.CutPrefix(name, eventHeader)
		switch {
		case value == "", len(value) > longValue:
		case name == "content-type", attribute && name == "datacontenttype":
			data = value
		case attribute && !is, name == "data", name == "data_base64", name == "specversion":
		case attribute:
			set(&e, name, unescape(value))
		case isAttribute(name), len(name) > longExtension, !event.IsExtensionNameValid(name):
		default:
			e.SetExtension(name, value)
		}
	}
	e.FieldErrors = nil // a wrong value of a record was not set
	if _, _, err := mime.ParseMediaType(data); err != nil {
		data = unknownData
	}
	e.SetDataContentType(data)
	e.DataEncoded, e.DataBase64 = payload, !isText(data, payload)
	return &e
}

// set sets an attribute that a record brought. A value that it can't have is ignored.
func set(e *event.Event, name, value string) {
	switch name {
	case "id":
		e.SetID(value)
	case "source":
		e.SetSource(value)
	case "type":
		e.SetType(value)
	case "subject":
		e.SetSubject(value)
	case "dataschema":
		e.SetDataSchema(value)
	case "time":
		if at, err := time.Parse(time.RFC3339Nano, value); err == nil {
			e.SetTime(at)
		}
	default:
		if event.IsExtensionNameValid(name) && len(name) <= longExtension {
			e.SetExtension(name, value)
		}
	}
}

func isAttribute(name string) bool {
	switch name {
	case "id", "source", "type", "subject", "dataschema", "time", "datacontenttype", "sequence":
		return true
	}
	return false
}

// isText reports whether a payload stands in a JSON event as it is. What says that it is JSON and
// is not would spoil the whole event.
func isText(contentType string, payload []byte) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch {
	case kind == "application/json" || kind == "text/json" || strings.HasSuffix(kind, "+json"):
		return json.Valid(payload)
	case strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "/xml") || strings.HasSuffix(kind, "+xml"):
		// In base64 it has four thirds of its bytes, so nothing becomes larger than that.
		return utf8.Valid(payload) && escapedSize(payload) <= base64.StdEncoding.EncodedLen(len(payload))
	}
	return false
}

// raw returns a record as it is: the payload as body, and its headers, with where it comes from.
func raw(to http.Header, of origin, r *item) (http.Header, []byte) {
	header, payload := protocol.SplitData(r.data, r.header)
	size := 0
	for key, value := range header.All() {
		name := http.CanonicalHeaderKey(string(key))
		if size += len(key) + len(value); size > rawHeader {
			break
		}
		own := name == contentType || strings.HasPrefix(name, "Ce-")
		if (&coordination.PushHeader{Name: string(key), Value: string(value)}).Allowed() || own && validValue(string(value)) {
			to.Add(name, string(value))
		}
	}
	to.Set("Carillon-Topic", of.topic)
	to.Set("Carillon-Subject", escape(r.subject))
	to.Set("Carillon-Offset", strconv.FormatUint(r.offset, 10))
	to.Set("Carillon-Time", time.Unix(0, r.time).UTC().Format(time.RFC3339Nano))
	return to, payload
}

func validValue(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r >= 0x7f })
}

// escape returns an attribute's value as a header has it: all but printable ASCII is
// percent-encoded, and so are space, quote and percent.
func escape(value string) string {
	plain := func(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }
	n := 0
	for n < len(value) && plain(value[n]) {
		n++
	}
	if n == len(value) {
		return value
	}
	out := []byte(value[:n])
	for ; n < len(value); n++ {
		if c := value[n]; plain(c) {
			out = append(out, c)
		} else {
			out = fmt.Appendf(out, "%%%02X", c)
		}
	}
	return string(out)
}

// unescape undoes escape. What is not encoded that way stays.
func unescape(value string) string {
	if !strings.Contains(value, "%") {
		return value
	}
	var out []byte
	for i := 0; i < len(value); i++ {
		if value[i] == '%' && i+2 < len(value) {
			if c, err := strconv.ParseUint(value[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(c))
				i += 2
				continue
			}
		}
		out = append(out, value[i])
	}
	return strings.ToValidUTF8(string(out), "\uFFFD")
}
