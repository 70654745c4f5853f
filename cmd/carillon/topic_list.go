package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
)

func newTopicListCommand() *cobra.Command {
	var (
		m        manageFlags
		orphaned bool
	)
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List Topics, who declared them and where they are",
		Long: `List Topics: what they keep, which broker leads them, which others are in sync, and who declared them.

REPLICAS is how many are in sync, and of how many; where there are several shards, of the one that is worst off.
MISSING are brokers whose replicas are not in sync: they are away, or catch up by themselves.

The owner is the namespace and name of a manifest, or a client. An orphaned Topic is one whose
manifest is gone, with deletionPolicy Retain: it goes on being served until a manifest of the same
namespace and name adopts it, or a client deletes it.`,
		Example: `  carillon topic list
  carillon topic list --orphaned
  carillon topic list --output json | jq '.topics[].name'`,
		Args:              takes(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			topics, err := b.listTopics(cmd.Context())
			if err != nil {
				return b.explain("list topics", err)
			}
			if orphaned {
				topics = slices.DeleteFunc(topics, func(v topicView) bool { return v.Owner == nil || v.Owner.Orphaned == nil })
			}
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), struct {
					Topics []topicView `json:"topics"`
				}{topics})
			}
			if len(topics) == 0 {
				b.note("there are no topics (see: carillon topic create --help)")
				return nil
			}
			return printTopics(cmd.OutOrStdout(), topics)
		},
	}
	m.flags(cmd, "table", "json")
	cmd.Flags().BoolVar(&orphaned, "orphaned", false, "only those whose manifest is gone")
	return cmd
}

// listTopics lists all Topics, by our API and by JetStream's. One of the two is enough.
func (b *brokers) listTopics(ctx context.Context) ([]topicView, error) {
	declared, adminErr := b.declaredTopics(ctx)
	streams, streamErr := b.streams(ctx)
	switch {
	case adminErr != nil && !errors.Is(adminErr, errNoAdmin):
		return nil, adminErr
	case adminErr != nil && streamErr != nil:
		return nil, streamErr
	case adminErr != nil:
		b.noteNoAdmin()
	case streamErr != nil:
		b.note("numbers are not known: %v", b.explain("list streams", streamErr))
	}
	views := []topicView{}
	for i := range declared {
		views = append(views, viewTopic(&declared[i], streams[declared[i].Name]))
	}
	if adminErr != nil {
		for _, name := range slices.Sorted(maps.Keys(streams)) {
			views = append(views, viewTopic(nil, streams[name]))
		}
	}
	return views, nil
}

func (b *brokers) noteNoAdmin() {
	b.note("%v: owners, places and why something is not served are not known", errNoAdmin)
}

func printTopics(w io.Writer, topics []topicView) error {
	rows := [][]string{{"NAME", "SUBJECTS", "MESSAGES", "SIZE", "SUBSCRIPTIONS", "DURABILITY", "LEADER", "REPLICAS", "IN SYNC", "MISSING", "OWNER", "AGE", "STATUS"}}
	for _, v := range topics {
		messages, size := "-", "-"
		if v.Numbers != nil {
			messages, size = strconv.FormatUint(v.Numbers.Messages, 10), bytesText(v.Numbers.Bytes)
		}
		rows = append(rows, []string{v.Name, few(v.Spec.Subjects, 2), messages, size, strconv.Itoa(v.Subscriptions),
			string(v.Spec.Durability), v.leaders(), v.replicaCount(), few(v.inSync(), 3), few(v.missing(), 2), ownerText(v.Owner), agoText(v.Created), v.status()})
	}
	return printTable(w, rows)
}

func newTopicShowCommand() *cobra.Command {
	var m manageFlags
	cmd := &cobra.Command{
		Use:               "show TOPIC",
		Aliases:           []string{"info"},
		Short:             "Show one Topic: settings, place, numbers and Subscriptions",
		Example:           `  carillon topic show orders`,
		Args:              takes(1, 1, "the name of a topic"),
		ValidArgsFunction: m.completeNames(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			topic, err := b.showTopic(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			subscriptions, err := b.listSubscriptions(cmd.Context(), topic, false)
			if err != nil {
				return err
			}
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), struct {
					topicView
					All []subscriptionView `json:"subscriptions"`
				}{*topic, subscriptions})
			}
			if err := printTopic(cmd.OutOrStdout(), topic); err != nil || len(subscriptions) == 0 {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout())
			return printSubscriptions(cmd.OutOrStdout(), subscriptions)
		},
	}
	m.flags(cmd, "table", "json")
	return cmd
}

func (b *brokers) showTopic(ctx context.Context, name string) (*topicView, error) {
	declared, err := b.declaredTopic(ctx, name)
	var refusal *admin.Error
	switch {
	case errors.As(err, &refusal):
		return nil, err
	case err != nil && !errors.Is(err, errNoAdmin):
		return nil, b.explain("topic "+name, err)
	}
	var info *jetstream.StreamInfo
	stream, streamErr := b.stream(ctx, name)
	if streamErr == nil {
		info = stream.CachedInfo()
	}
	switch {
	case streamErr != nil && declared == nil:
		return nil, b.found(name, streamErr)
	case streamErr != nil && declared.Served:
		b.note("numbers are not known: %v", b.found(name, streamErr))
	case declared == nil:
		b.noteNoAdmin()
	}
	v := viewTopic(declared, info)
	if len(v.Shards) > 1 {
		v.ShardNumbers = b.shardNumbers(ctx, name, len(v.Shards))
	}
	v.Copies = b.copies(ctx, &v)
	if v.Served != nil && *v.Served && streamErr != nil {
		// The broker that answered knows the leader. Only the leader knows that it can't serve.
		v.statusView = viewStatus(admin.Status{Reason: admin.Trouble, Why: words(streamErr)})
	}
	return &v, nil
}

// shardNumbers returns the numbers of each of several shards; nil: it did not answer.
func (b *brokers) shardNumbers(ctx context.Context, name string, shards int) []*topicNumbers {
	all := make([]*topicNumbers, shards)
	var asking sync.WaitGroup
	for n := range all {
		asking.Go(func() {
			if stream, err := b.stream(ctx, shardStream(name, n)); err == nil {
				all[n] = numbersOf(stream.CachedInfo())
			}
		})
	}
	asking.Wait()
	return all
}

// shardStream returns the name of the stream of one of several shards.
func shardStream(topic string, shard int) string { return fmt.Sprintf("%s--%d", topic, shard) }

func printTopic(w io.Writer, v *topicView) error {
	rows := [][]string{{"Topic", v.Name}, {"Subjects", strings.Join(v.Spec.Subjects, ", ")}}
	add := func(name, value string) { rows = append(rows, []string{name, value}) }
	if v.Owner != nil {
		add("Owner", v.Owner.Coordination().String())
	}
	if v.Owner != nil && v.Owner.Orphaned != nil {
		add("Orphaned", "since "+timeText(*v.Owner.Orphaned))
	}
	if v.ID != "" {
		add("Id", v.ID)
		add("Generation", strconv.FormatInt(v.Generation, 10))
	}
	add("Created", timeText(v.Created))
	if v.Spec.Stream.Description != "" {
		add("Description", v.Spec.Stream.Description)
	}
	add("Durability", durabilities[v.Spec.Durability])
	add("Replicas", v.replicasText())
	if v.Spec.UncleanElection {
		add("Unclean election", "allowed: acknowledged messages are lost if a broker must lead that lacks them")
	}
	add("Retention", retentionText(v.Spec.Retention))
	if n := v.Spec.Stream.MaxPerSubject; n > 0 {
		add("Per subject", fmt.Sprintf("the newest %s are kept; another one removes the oldest at once", counted(int(n), "message")))
	}
	if v.Spec.Compaction == coordination.LatestOnly {
		add("Compaction", "latest: the newest message of each subject is kept, and older ones go in a while")
	}
	if v.Spec.MaxMessage > 0 {
		add("Largest message", bytesText(uint64(v.Spec.MaxMessage)))
	}
	deduplication := "none"
	if v.Spec.Deduplication > 0 {
		deduplication = durationText(v.Spec.Deduplication)
	}
	add("Deduplication", deduplication)
	for _, row := range streamRows(&v.Spec.Stream) {
		add(row[0], row[1])
	}
	if v.Owner != nil && v.Owner.Kind == coordination.ManifestOwner {
		add("When its manifest goes", string(v.Spec.DeletionPolicy))
	}
	add("Status", v.status())
	if v.Why != "" {
		add("Why", v.Why)
	}
	if len(v.Shards) > 1 {
		add("Shards", fmt.Sprintf("%d, by %s", len(v.Shards), partitionText(&v.Spec)))
	}
	for i, shard := range v.Shards {
		text := shardText(shard)
		if i < len(v.ShardNumbers) && v.ShardNumbers[i] != nil {
			text += "; " + v.ShardNumbers[i].text()
		}
		add(fmt.Sprintf("Shard %d", shard.Number), text)
		for _, row := range replicaRows(&shard) {
			add(row[0], row[1])
		}
	}
	if n := v.Numbers; n != nil {
		add("Messages", strconv.FormatUint(n.Messages, 10))
		add("Size", bytesText(n.Bytes))
		place := func(sequence uint64, at time.Time) string {
			if len(v.Shards) > 1 { // each shard has sequences of its own
				return timeText(at)
			}
			return fmt.Sprintf("#%d, %s", sequence, timeText(at))
		}
		if n.Messages > 0 {
			add("Oldest", place(n.First, n.FirstTime))
		}
		if n.Last > 0 {
			add("Newest", place(n.Last, n.LastTime))
		}
	}
	if text := v.unscrubbedText(); text != "" {
		add("Oldest scrub", text)
	}
	add("Subscriptions", strconv.Itoa(v.Subscriptions))
	return printTable(w, rows)
}

func partitionText(spec *coordination.TopicSpec) string {
	if spec.PartitionBy != coordination.ByTokens {
		return "subject"
	}
	return "the tokens of subjects at " + strings.Trim(fmt.Sprint(spec.PartitionTokens), "[]")
}

func shardText(s admin.Shard) string {
	if s.Leader == nil {
		return "no leader"
	}
	return fmt.Sprintf("led by %s, epoch %d", brokerText(*s.Leader), s.Epoch)
}
