package coordination

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// topicValue is the JSON of a Topic. Fields may be added; a change of meaning needs a new version.
type topicValue struct {
	V          int       `json:"v"`
	ID         string    `json:"id"`
	Spec       TopicSpec `json:"spec"`
	Generation int64     `json:"generation"`
	Owner      Owner     `json:"owner"`
	Created    time.Time `json:"created"`
	Deleting   bool      `json:"deleting,omitempty"`
}

const topicValueVersion = 1

func (c *Client) topicsPrefix() string { return c.prefix + "topics/" }

func (c *Client) topicKey(name string) string { return c.topicsPrefix() + name }

func (t *Topic) encode() (string, error) {
	return encodeValue("topic "+t.Name, topicValue{topicValueVersion, t.ID, t.Spec, t.Generation, t.Owner, t.Created, t.Deleting})
}

func (c *Client) decodeTopic(kv *mvccpb.KeyValue) (*Topic, error) {
	t := &Topic{Name: strings.TrimPrefix(string(kv.GetKey()), c.topicsPrefix()), Revision: kv.GetModRevision(), Made: kv.GetCreateRevision()}
	var value topicValue
	if err := decodeValue("topic "+t.Name, kv.GetValue(), topicValueVersion, &value, &value.V); err != nil {
		return nil, err
	}
	if !validID(value.ID) {
		return nil, fmt.Errorf("decode topic %s: its id is %q (restore the key %s)", t.Name, value.ID, kv.GetKey())
	}
	if why := firstUnknown(validTopicName(t.Name), value.Spec.valid()); why != "" {
		return nil, fmt.Errorf("decode topic %s: %s", t.Name, why)
	}
	t.ID, t.Spec, t.Generation, t.Owner, t.Created, t.Deleting = value.ID, value.Spec, value.Generation, value.Owner, value.Created, value.Deleting
	t.bytes, t.usage = t.room(string(kv.GetKey()), len(kv.GetValue())), t.uses()
	return t, nil
}

// encodeValue encodes a value as JSON of a bounded size.
func encodeValue(what string, value any) (string, error) { return encodeBounded(what, value, maxValue) }

func encodeBounded(what string, value any, most int) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", what, err)
	}
	if len(data) > most {
		return "", &InvalidError{what, fmt.Sprintf("its settings take %d bytes (use at most %d)", len(data), most)}
	}
	return string(data), nil
}

// decodeValue decodes a value and refuses one of a later version than newest. got points to its
// decoded version, from 1.
func decodeValue(what string, data []byte, newest int, value any, got *int) error {
	err := json.Unmarshal(data, value)
	if err != nil { // a later version may have other types; then report the version
		var versioned struct {
			V int `json:"v"`
		}
		if json.Unmarshal(data, &versioned) != nil || versioned.V <= newest {
			return fmt.Errorf("decode %s: %w", what, err)
		}
		*got = versioned.V
	}
	if *got < 1 || *got > newest {
		return fmt.Errorf("decode %s: version %d of the value is unknown here (upgrade this program)", what, *got)
	}
	return nil
}

// idBytes is the length of random ids, which makes a collision practically impossible.
const idBytes = 16

func newID() string {
	var id [idBytes]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// validID checks an id. Ids are used as names of directories, so it must not be a path.
func validID(id string) bool {
	data, err := hex.DecodeString(id)
	return err == nil && len(data) == idBytes
}

// pageKeys is the number of keys per request, few enough that an answer arrives well within its
// deadline.
const pageKeys = 1000

// pages reads all keys under a prefix at one revision.
func (c *Client) pages(ctx context.Context, prefix string, each func(*mvccpb.KeyValue)) (revision int64, err error) {
	return c.pagesFrom(ctx, prefix, prefix, each)
}

// pagesFrom is pages without the keys below from.
func (c *Client) pagesFrom(ctx context.Context, from, prefix string, each func(*mvccpb.KeyValue)) (revision int64, err error) {
	end := clientv3.GetPrefixRangeEnd(prefix)
	for {
		got, err := c.page(ctx, from, end, revision)
		if err != nil {
			return 0, fmt.Errorf("get %s: %w", prefix, err)
		}
		if revision == 0 {
			revision = got.Header.GetRevision()
		}
		for _, kv := range got.Kvs {
			each(kv)
		}
		if !got.More || len(got.Kvs) == 0 {
			return revision, nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].GetKey()) + "\x00"
	}
}

func (c *Client) page(ctx context.Context, from, end string, revision int64) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return c.etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageKeys), clientv3.WithRev(revision))
}
