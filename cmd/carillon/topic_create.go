package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/placement"
)

// durabilities describes what an ack promises.
var durabilities = map[coordination.Durability]string{
	coordination.Synced:     "Synced: acknowledged once it is on disk",
	coordination.Replicated: "Replicated: acknowledged once the operating system has it",
	coordination.Memory:     "Memory: never on disk, gone with its broker",
}

// topicFlags are the settings of a new Topic.
type topicFlags struct {
	subjects             []string
	maxAge, dedup        ageFlag
	maxBytes, maxMessage sizeFlag
	maxMessages          int64
	maxPerSubject        int64
	durability           string
	compaction           string
	description          string
	replicas, minInSync  int
	unclean              bool
	shards               int
	tokens               []int
	stream               streamFlags
}

func newTopicCreateCommand() *cobra.Command {
	var (
		m manageFlags
		t topicFlags
	)
	cmd := &cobra.Command{
		Use:     "create TOPIC",
		Aliases: []string{"add"},
		Short:   "Create a Topic",
		Long: `Create a Topic: a log of what is published on some subjects. It may be repeated: where that
Topic is already, with the same settings, nothing is changed.

Each of its replicas is on another broker. An acknowledged message is with all that are in sync, which
must be at least --min-in-sync: with less, publishing waits. With 1 of several it goes on with a
single broker, whose disk is then all there is.

With --shards it is several logs, over which its subjects are divided, so that more brokers share the work. The
messages of a subject stay in order; those of different subjects may not. --partition-tokens says that only those
tokens of a subject decide: with 2, orders.eu.1 and orders.eu.2 are in the same shard. Neither can be changed later.

What is made here belongs to clients. Where Topics are to be declared with the application that
uses them, apply a manifest of kind Topic instead.`,
		Example: `  carillon topic create orders
  carillon topic create payments --replicas 5 --min-in-sync 3
  carillon topic create clicks --shards 4 --partition-tokens 2
  carillon topic create all --sources orders,payments --shards 4 --min-in-sync 1
  carillon topic create metrics --subjects 'metrics.>' --max-age 7d --max-bytes 10Gi --durability replicated`,
		Args:              takes(1, 1, "the name of a topic"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			config, request, err := t.request(args[0])
			if err != nil {
				return err
			}
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			stream, err := b.createTopic(cmd.Context(), config, request)
			if err != nil {
				return err
			}
			declared, err := b.declaredTopic(cmd.Context(), args[0])
			if errors.Is(err, errNoAdmin) && t.durability == "synced" {
				b.note("%v: when it writes to disk is for its sync_interval to say", errNoAdmin)
			}
			v := viewTopic(declared, stream)
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), v)
			}
			in := ""
			if v.Spec.Shards > 1 {
				in = fmt.Sprintf(" in %d shards", v.Spec.Shards)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "topic %s keeps %s%s\n", v.Name, keepsText(&v), in)
			return nil
		},
	}
	m.flags(cmd, "text", "json")
	t.flags(cmd)
	return cmd
}

// keepsText returns the subjects of a Topic, and whose messages it copies.
func keepsText(v *topicView) string {
	all := v.Spec.Subjects
	for _, from := range v.Spec.Stream.Copies() {
		all = append(all, "messages of "+from.Name)
	}
	return strings.Join(all, ", ")
}

func (t *topicFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&t.subjects, "subjects", nil, "what it keeps, with wildcards; several with commas, or repeat it (default TOPIC and TOPIC.>)")
	f.Var(&t.maxAge, "max-age", "how long messages are kept, for example 7d (default for ever)")
	f.Var(&t.maxBytes, "max-bytes", "how much is kept, for example 10Gi; the oldest go first (default no limit)")
	f.Int64Var(&t.maxMessages, "max-messages", 0, "how many messages are kept; the oldest go first (default no limit)")
	f.Int64Var(&t.maxPerSubject, "max-messages-per-subject", 0, "how many messages are kept of each subject; a newer one removes the oldest at once (default no limit)")
	f.Var(&t.maxMessage, "max-message-size", "largest message, headers included (default what the broker takes)")
	f.StringVar(&t.durability, "durability", "synced", "what an acknowledged message has survived: synced (on disk), replicated (with the operating system) or memory")
	f.StringVar(&t.compaction, "compaction", "none", "none, or latest: of each subject only the newest message is kept; older ones go in the background, after a while")
	f.Var(&t.dedup, "dedup-window", "for how long a Nats-Msg-Id is remembered (default 2m, or --max-age if that is shorter)")
	f.IntVar(&t.replicas, "replicas", 0, "how many brokers keep it (default 3, or as many as there are brokers)")
	f.IntVar(&t.minInSync, "min-in-sync", 0, "how many must be in sync for publishing to go on (default a majority)")
	f.BoolVar(&t.unclean, "unclean-election", false, "if no other is there, let a broker lead that may lack acknowledged messages, which are lost then")
	f.IntVar(&t.shards, "shards", 0, "how many logs its subjects are divided over (default 1, and with --mirror as many as its topic has)")
	f.IntSliceVar(&t.tokens, "partition-tokens", nil, "`POSITIONS` of the tokens of a subject that decide its shard, counted from 1, for example 2,3 (default the whole subject)")
	t.stream.flags(cmd)
	f.StringVar(&t.description, "description", "", "a sentence for people")
	complete(cmd, "durability", "synced", "replicated", "memory")
	complete(cmd, "compaction", "none", "latest")
	complete(cmd, "replicas", "1", "3", "5")
	complete(cmd, "min-in-sync", "1", "2", "3")
}

// request returns the settings of the flags: the part that JetStream's API has, and all of it for
// ours. For an invalid flag it returns a usageError.
func (t *topicFlags) request(name string) (config jetstream.StreamConfig, request admin.CreateRequest, err error) {
	config = jetstream.StreamConfig{
		Name: name, Description: t.description, Subjects: t.subjects, Replicas: t.replicas,
		MaxAge: time.Duration(t.maxAge), MaxBytes: limit(int64(t.maxBytes)), MaxMsgs: limit(t.maxMessages), Duplicates: time.Duration(t.dedup),
		MaxMsgSize: int32(limit(min(int64(t.maxMessage), math.MaxInt32))), MaxConsumers: -1, MaxMsgsPerSubject: limit(t.maxPerSubject),
	}
	if len(t.subjects) == 0 {
		config.Subjects = []string{name, name + ".>"}
	}
	switch {
	case t.maxMessages < 0:
		err = errors.New("--max-messages can't be negative; leave it out to have no limit")
	case t.maxPerSubject < 0:
		err = errors.New("--max-messages-per-subject can't be negative; leave it out to have no limit")
	case t.shards < 0 || t.shards > placement.MaxShards:
		err = fmt.Errorf("--shards %d: choose 1 to %d", t.shards, placement.MaxShards)
	case t.replicas < 0 || t.replicas > maxTopicReplicas:
		err = fmt.Errorf("--replicas %d: choose 1 to %d, or 0 for as many as brokers allow, up to 3", t.replicas, maxTopicReplicas)
	case t.minInSync < 0 || t.minInSync > maxTopicReplicas || t.replicas > 0 && t.minInSync > t.replicas:
		err = fmt.Errorf("--min-in-sync %d: choose 1 to the number of replicas, or 0 for a majority", t.minInSync)
	default:
		err = t.stream.apply(&config, len(t.subjects) > 0)
	}
	if err != nil {
		return config, request, usageError{err}
	}
	switch t.durability {
	case "synced":
	case "replicated":
		config.PersistMode = jetstream.AsyncPersistMode
	case "memory":
		config.Storage = jetstream.MemoryStorage
	default:
		return config, request, usageError{fmt.Errorf("--durability %q: choose synced, replicated or memory", t.durability)}
	}
	request = admin.CreateRequest{MinInSync: t.minInSync, UncleanElection: t.unclean, Shards: t.shards, PartitionTokens: t.tokens}
	switch t.compaction {
	case "none":
	case "latest":
		request.Compaction = coordination.LatestOnly
	default:
		return config, request, usageError{fmt.Errorf("--compaction %q: choose none or latest", t.compaction)}
	}
	return config, request, nil
}

// maxTopicReplicas is the largest number of replicas that brokers support.
const maxTopicReplicas = 5

// createTopic creates a Topic and waits until it is served. It uses our API, which has all
// settings, and on another server JetStream's.
func (b *brokers) createTopic(ctx context.Context, config jetstream.StreamConfig, request admin.CreateRequest) (*jetstream.StreamInfo, error) {
	what := "create topic " + config.Name
	recode(config, &request.Stream)
	var made admin.TopicInfo
	err := b.ask(ctx, admin.TopicCreateSubject+config.Name, request, &made)
	switch {
	case errors.Is(err, errNoAdmin) && request.BeyondJetStream():
		return nil, fmt.Errorf("%s: %w: it has no word for --min-in-sync, --unclean-election, --shards, --partition-tokens and --compaction", what, err)
	case errors.Is(err, errNoAdmin):
		stream, err := b.js.CreateStream(ctx, config)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil, b.exists(ctx, config.Name)
		}
		if err != nil {
			return nil, b.explain(what, err)
		}
		return stream.CachedInfo(), nil
	case err != nil:
		return nil, b.explain(what, err)
	case made.Error != nil && made.Error.Code == admin.Exists:
		return nil, b.exists(ctx, config.Name)
	case made.Error != nil:
		return nil, b.explain(what, made.Error)
	}
	info, err := b.served(ctx, config.Name)
	if err == nil {
		return info, nil
	}
	if known, _ := b.declaredTopic(ctx, config.Name); known != nil && !known.Served && ctx.Err() == nil {
		return nil, fmt.Errorf("topic %s was made, but is not served yet: %s", config.Name, known.Why)
	}
	return nil, b.explain("topic "+config.Name+" was made, but is not served yet", err)
}

// servedEvery is the interval of requests whether a new Topic is served, which takes some
// milliseconds.
const servedEvery = 10 * time.Millisecond

// served waits until the leader of a new Topic serves it.
func (b *brokers) served(ctx context.Context, topic string) (*jetstream.StreamInfo, error) {
	within, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	for {
		stream, err := b.js.Stream(within, topic)
		if err == nil {
			return stream.CachedInfo(), nil
		}
		select {
		case <-within.Done():
			return nil, err
		case <-time.After(servedEvery):
		}
	}
}

// exists returns the error that a Topic exists with other settings, with its owner.
func (b *brokers) exists(ctx context.Context, name string) error {
	owner := ""
	if declared, err := b.declaredTopic(ctx, name); err == nil {
		owner = " of " + declared.Owner.Coordination().String()
	}
	return fmt.Errorf("create topic %s: there is one already%s, with other settings (see: carillon topic show %s)", name, owner, name)
}

// limit returns JetStream's form of a limit: -1 for none.
func limit(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}

func retentionText(r coordination.Retention) string {
	var limits []string
	if r.Age > 0 {
		limits = append(limits, durationText(r.Age))
	}
	if r.Bytes > 0 {
		limits = append(limits, bytesText(uint64(r.Bytes)))
	}
	if r.Messages > 0 {
		limits = append(limits, strconv.FormatInt(r.Messages, 10)+" messages")
	}
	if len(limits) == 0 {
		return "for ever"
	}
	return "at most " + strings.Join(limits, ", ")
}
