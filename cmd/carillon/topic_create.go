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

	"github.com/carillon-mq/carillon/broker/coordination"
)

// durabilities are what is promised when a message is acknowledged.
var durabilities = map[coordination.Durability]string{
	coordination.Synced:     "Synced: acknowledged once it is on disk",
	coordination.Replicated: "Replicated: acknowledged once the operating system has it",
	coordination.Memory:     "Memory: never on disk, gone with its broker",
}

func newTopicCreateCommand() *cobra.Command {
	var (
		m                    manageFlags
		subjects             []string
		maxAge, dedup        ageFlag
		maxBytes, maxMessage sizeFlag
		maxMessages          int64
		durability           string
		description          string
	)
	cmd := &cobra.Command{
		Use:     "create TOPIC",
		Aliases: []string{"add"},
		Short:   "Create a Topic",
		Long: `Create a Topic: a log of what is published on some subjects. It may be repeated: where that
Topic is already, with the same settings, nothing is changed.

What is made here belongs to clients. Where Topics are to be declared with the application that
uses them, apply a manifest of kind Topic instead.`,
		Example: `  carillon topic create orders
  carillon topic create metrics --subjects 'metrics.>' --max-age 7d --max-bytes 10Gi --durability replicated`,
		Args:              takes(1, 1, "the name of a topic"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			config := jetstream.StreamConfig{
				Name: args[0], Description: description, Subjects: subjects, Replicas: 1,
				MaxAge: time.Duration(maxAge), MaxBytes: limit(int64(maxBytes)), MaxMsgs: limit(maxMessages), Duplicates: time.Duration(dedup),
				MaxMsgSize: int32(limit(min(int64(maxMessage), math.MaxInt32))), MaxConsumers: -1, MaxMsgsPerSubject: -1,
			}
			if len(subjects) == 0 {
				config.Subjects = []string{args[0], args[0] + ".>"}
			}
			if maxMessages < 0 {
				return usageError{errors.New("--max-messages can't be negative; leave it out to have no limit")}
			}
			switch durability {
			case "synced":
			case "replicated":
				config.PersistMode = jetstream.AsyncPersistMode
			case "memory":
				config.Storage = jetstream.MemoryStorage
			default:
				return usageError{fmt.Errorf("--durability %q: choose synced, replicated or memory", durability)}
			}
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			stream, err := b.js.CreateStream(cmd.Context(), config)
			if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
				return b.exists(cmd.Context(), args[0])
			}
			if err != nil {
				return b.explain("create topic "+args[0], err)
			}
			declared, err := b.declaredTopic(cmd.Context(), args[0])
			if errors.Is(err, errNoAdmin) && durability == "synced" {
				b.note("%v: when it writes to disk is for its sync_interval to say", errNoAdmin)
			}
			v := viewTopic(declared, stream.CachedInfo())
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), v)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "topic %s keeps %s\n", v.Name, strings.Join(v.Spec.Subjects, ", "))
			return nil
		},
	}
	f := cmd.Flags()
	m.flags(cmd, "text", "json")
	f.StringSliceVar(&subjects, "subjects", nil, "what it keeps, with wildcards; several with commas, or repeat it (default TOPIC and TOPIC.>)")
	f.Var(&maxAge, "max-age", "how long messages are kept, for example 7d (default for ever)")
	f.Var(&maxBytes, "max-bytes", "how much is kept, for example 10Gi; the oldest go first (default no limit)")
	f.Int64Var(&maxMessages, "max-messages", 0, "how many messages are kept; the oldest go first (default no limit)")
	f.Var(&maxMessage, "max-message-size", "largest message, headers included (default what the broker takes)")
	f.StringVar(&durability, "durability", "synced", "what an acknowledged message has survived: synced (on disk), replicated (with the operating system) or memory")
	f.Var(&dedup, "dedup-window", "for how long a Nats-Msg-Id is remembered (default 2m, or --max-age if that is shorter)")
	f.StringVar(&description, "description", "", "a sentence for people")
	complete(cmd, "durability", "synced", "replicated", "memory")
	return cmd
}

// exists says that a Topic is there with other settings, and whose it is.
func (b *brokers) exists(ctx context.Context, name string) error {
	owner := ""
	if declared, err := b.declaredTopic(ctx, name); err == nil {
		owner = " of " + declared.Owner.Coordination().String()
	}
	return fmt.Errorf("create topic %s: there is one already%s, with other settings (see: carillon topic show %s)", name, owner, name)
}

// limit is -1 where there is none.
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
