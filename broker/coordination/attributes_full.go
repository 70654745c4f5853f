package coordination

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/work"
)

const (
	// fullEvery is how often it is looked at whether there is room for what manifests declare. The
	// operator's declarations of as long may exceed the bound.
	fullEvery = time.Second
	// fullAgain is how often it is told although nothing has changed: a former controller may have
	// told something else.
	fullAgain = 30 * time.Second
	// largestDeclared is how much a manifest may declare, in bytes.
	largestDeclared = MaxDeclared * attribute.MaxBytes
)

// fullKey is there while attributes take so many bytes that there may be no room for what a
// manifest declares. Who declares that does not follow all attributes, and compares this key
// instead.
func (c *Client) fullKey() string { return c.prefix + "attributes/full" }

// fullValue is the value of fullKey; that the key is there says it all.
const fullValue = `{"v":1}`

// TellFull has etcd know whether there is room for what manifests declare, while controls says that
// this broker is the controller, until ctx ends.
func (a *Attributes) TellFull(ctx context.Context, controls func() bool) {
	told, last := time.Time{}, false
	for work.Sleep(ctx, fullEvery) {
		is := a.store.Stats()
		if !controls() || !is.Ready || is.Distrusted {
			told = time.Time{}
			continue
		}
		full := is.Bytes > a.most.bytes-largestDeclared
		if full == last && time.Since(told) < fullAgain {
			continue
		}
		told, last = time.Now(), full
		if err := a.tellFull(ctx, full); err != nil {
			told = time.Time{}
			a.c.log.Debug("could not tell whether there is room for attributes of manifests; trying again", "error", err)
		}
	}
}

// tellFull writes nothing if etcd knows.
func (a *Attributes) tellFull(ctx context.Context, full bool) error {
	key := a.c.fullKey()
	was, op := "=", clientv3.OpPut(key, fullValue)
	if !full {
		was, op = ">", clientv3.OpDelete(key)
	}
	_, err := a.c.transact(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), was, 0)}, []clientv3.Op{op})
	return err
}

// refuseFull returns an error if there is no room for more bytes of attributes. Its text is the
// same as long as that lasts: it stands in a status, whose changes are writes.
func (c *Client) refuseFull(ctx context.Context, subject string) error {
	got, err := c.transact(ctx, nil, []clientv3.Op{clientv3.OpGet(c.fullKey(), clientv3.WithCountOnly())})
	if err != nil {
		return fmt.Errorf("look whether there is room for attributes: %w", err)
	}
	if got.Responses[0].GetResponseRange().GetCount() == 0 {
		return nil
	}
	return &InvalidError{"declare attributes", fmt.Sprintf("subject %s: attributes of the cluster take nearly all of their %d MiB, so manifests can't declare more (delete those that are not needed, or bind them to connections)", subject, attribute.MaxTotal>>20)}
}
