// franz-go behind lines of JSON: one request a line on stdin, one answer a line on stdout (drivers/client.py).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type header [2]*string

type record struct {
	Partition *int32   `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp *int64   `json:"timestamp"`
	Key       *string  `json:"key"`
	Value     *string  `json:"value"`
	Headers   []header `json:"headers"`
}

type request struct {
	Op         string            `json:"op"`
	Topic      string            `json:"topic"`
	Group      string            `json:"group"`
	Member     string            `json:"member"`
	Instance   string            `json:"instance"`
	Assignor   string            `json:"assignor"`
	Codec      string            `json:"codec"`
	Acks       string            `json:"acks"`
	Idempotent bool              `json:"idempotent"`
	Records    []record          `json:"records"`
	Partition  int32             `json:"partition"`
	Partitions int32             `json:"partitions"`
	Total      int               `json:"total"`
	Offset     *int64            `json:"offset"`
	Timestamp  *int64            `json:"timestamp"`
	Before     int64             `json:"before"`
	Count      int               `json:"count"`
	Configs    map[string]string `json:"configs"`
	Committed  bool              `json:"committed"`
	Producer   string            `json:"producer"`
	ID         string            `json:"id"`
	Values     []string          `json:"values"`
	Commit     bool              `json:"commit"`
}

func bytesOf(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

func textOf(value []byte) *string {
	if value == nil {
		return nil
	}
	text := string(value)
	return &text
}

func describe(r *kgo.Record) record {
	at := r.Timestamp.UnixMilli()
	one := record{Partition: &r.Partition, Offset: r.Offset, Timestamp: &at, Key: textOf(r.Key), Value: textOf(r.Value)}
	one.Headers = []header{}
	for _, h := range r.Headers {
		key := h.Key
		one.Headers = append(one.Headers, header{&key, textOf(h.Value)})
	}
	return one
}

type member struct {
	client     *kgo.Client
	mutex      sync.Mutex
	records    []record
	owned      map[int32]bool
	rebalances int
	cancel     context.CancelFunc
	done       chan struct{}
}

type driver struct {
	bootstrap string
	members   map[string]*member
	admin     *kadm.Client
	producers map[string]*kgo.Client
	begun     map[string]bool
}

func (d *driver) handle(r *request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	switch r.Op {
	case "produce":
		return d.produce(ctx, r)
	case "fetch":
		return d.fetch(r)
	case "txn_init":
		return nil, d.initTransactions(ctx, r)
	case "txn_send":
		return nil, d.sendInTransaction(ctx, r)
	case "txn_end":
		d.begun[r.Producer] = false
		return nil, d.producers[r.Producer].EndTransaction(ctx, kgo.TransactionEndTry(r.Commit))
	case "join":
		return nil, d.join(r)
	case "state":
		return d.members[r.Member].state(), nil
	case "commit":
		return nil, d.members[r.Member].client.CommitUncommittedOffsets(ctx)
	case "leave":
		d.members[r.Member].close(r.Instance)
		delete(d.members, r.Member)
		return nil, nil
	}
	return d.administer(ctx, r)
}

func (d *driver) produce(ctx context.Context, r *request) (any, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	options := []kgo.Opt{
		kgo.SeedBrokers(d.bootstrap), kgo.AllowAutoTopicCreation(), kgo.ProducerBatchCompression(codecs[r.Codec]), kgo.RequiredAcks(acks[r.Acks]),
		kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
			return func(one *kgo.Record, count int) int {
				if one.Partition >= 0 {
					return int(one.Partition)
				}
				return len(one.Key) % count
			}
		})),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	if !r.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var sent []*kgo.Record
	for _, one := range r.Records {
		made := &kgo.Record{Topic: r.Topic, Partition: -1, Key: bytesOf(one.Key), Value: bytesOf(one.Value)}
		if one.Partition != nil {
			made.Partition = *one.Partition
		}
		if one.Timestamp != nil {
			made.Timestamp = time.UnixMilli(*one.Timestamp)
		}
		for _, h := range one.Headers {
			made.Headers = append(made.Headers, kgo.RecordHeader{Key: *h[0], Value: bytesOf(h[1])})
		}
		sent = append(sent, made)
	}
	answer := [][2]int64{}
	for _, result := range client.ProduceSync(ctx, sent...) {
		if result.Err != nil {
			return nil, result.Err
		}
	}
	for _, one := range sent {
		offset := one.Offset
		if r.Acks == "0" {
			offset = -1
		}
		answer = append(answer, [2]int64{int64(one.Partition), offset})
	}
	return answer, nil
}

func (d *driver) initTransactions(ctx context.Context, r *request) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(d.bootstrap), kgo.TransactionalID(r.ID), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	d.producers[r.Producer] = client
	// Asks for the producer id now, as other clients do when they begin: whoever had it is fenced.
	_, _, err = client.ProducerID(ctx)
	return err
}

func (d *driver) sendInTransaction(ctx context.Context, r *request) error {
	client := d.producers[r.Producer]
	if !d.begun[r.Producer] {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		d.begun[r.Producer] = true
	}
	var sent []*kgo.Record
	for _, value := range r.Values {
		sent = append(sent, &kgo.Record{Topic: r.Topic, Partition: r.Partition, Value: []byte(value)})
	}
	return client.ProduceSync(ctx, sent...).FirstErr()
}

func (d *driver) fetch(r *request) (any, error) {
	start := kgo.NewOffset().AtStart()
	if r.Offset != nil {
		start = kgo.NewOffset().At(*r.Offset)
	} else if r.Timestamp != nil {
		start = kgo.NewOffset().AfterMilli(*r.Timestamp)
	}
	isolation := kgo.ReadUncommitted()
	if r.Committed {
		isolation = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(d.bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: {r.Partition: start}}),
		kgo.FetchIsolationLevel(isolation),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	answer := []record{}
	for len(answer) < r.Count && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
		fetches.EachRecord(func(one *kgo.Record) { answer = append(answer, describe(one)) })
	}
	return answer, nil
}

func (d *driver) join(r *request) error {
	balancers := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "sticky": kgo.StickyBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	m := &member{owned: map[int32]bool{}, done: make(chan struct{}), records: []record{}}
	lost := func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
		m.mutex.Lock()
		defer m.mutex.Unlock()
		for _, partition := range gone[r.Topic] {
			delete(m.owned, partition)
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(d.bootstrap), kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Balancers(balancers[r.Assignor]), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
			m.mutex.Lock()
			defer m.mutex.Unlock()
			m.rebalances++
			for _, partition := range got[r.Topic] {
				m.owned[partition] = true
			}
		}),
		kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost),
	}
	if r.Instance != "" {
		options = append(options, kgo.InstanceID(r.Instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	m.client = client
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(one *kgo.Record) {
				m.mutex.Lock()
				defer m.mutex.Unlock()
				m.records = append(m.records, describe(one))
			})
		}
	}()
	d.members[r.Member] = m
	return nil
}

func (m *member) state() any {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	owned := []int32{}
	for partition := range m.owned {
		owned = append(owned, partition)
	}
	slices.Sort(owned)
	return map[string]any{"assignment": owned, "records": slices.Clone(m.records), "rebalances": m.rebalances}
}

func (m *member) close(_ string) {
	m.cancel()
	<-m.done
	m.client.Close()
}

func (d *driver) administer(ctx context.Context, r *request) (any, error) {
	if d.admin == nil {
		client, err := kgo.NewClient(kgo.SeedBrokers(d.bootstrap))
		if err != nil {
			return nil, err
		}
		d.admin = kadm.NewClient(client)
	}
	configs := map[string]*string{}
	for key, value := range r.Configs {
		configs[key] = &value
	}
	switch r.Op {
	case "create_topic":
		_, err := d.admin.CreateTopic(ctx, r.Partitions, -1, configs, r.Topic)
		return nil, err
	case "list_topics":
		topics, err := d.admin.ListTopics(ctx)
		return topics.Names(), err
	case "describe_topic":
		topics, err := d.admin.ListTopics(ctx, r.Topic)
		if err == nil {
			err = topics.Error()
		}
		if err != nil {
			return nil, err
		}
		found := topics[r.Topic].Partitions
		return map[string]any{"partitions": len(found), "leader": found[0].Leader}, nil
	case "create_partitions":
		done, err := d.admin.UpdatePartitions(ctx, r.Total, r.Topic)
		if err == nil {
			err = done.Error()
		}
		return nil, err
	case "delete_topic":
		_, err := d.admin.DeleteTopic(ctx, r.Topic)
		return nil, err
	case "alter_topic_config":
		var changes []kadm.AlterConfig
		for key, value := range configs {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: value})
		}
		done, err := d.admin.AlterTopicConfigs(ctx, changes, r.Topic)
		if err == nil {
			_, err = done.On(r.Topic, func(one *kadm.AlterConfigsResponse) error { return one.Err })
		}
		return nil, err
	case "describe_topic_config":
		found, err := d.admin.DescribeTopicConfigs(ctx, r.Topic)
		if err != nil {
			return nil, err
		}
		answer := map[string]*string{}
		for _, one := range found {
			if one.Err != nil {
				return nil, one.Err
			}
			for _, config := range one.Configs {
				answer[config.Key] = config.Value
			}
		}
		return answer, nil
	case "list_groups":
		groups, err := d.admin.ListGroups(ctx)
		return groups.Groups(), err
	case "describe_group":
		groups, err := d.admin.DescribeGroups(ctx, r.Group)
		if err == nil {
			err = groups.Error()
		}
		if err != nil {
			return nil, err
		}
		return map[string]any{"state": groups[r.Group].State, "members": len(groups[r.Group].Members)}, nil
	case "group_offsets":
		offsets, err := d.admin.FetchOffsets(ctx, r.Group)
		answer := map[string]int64{}
		offsets.Each(func(one kadm.OffsetResponse) { answer[strconv.Itoa(int(one.Partition))] = one.At })
		return answer, err
	case "delete_group":
		_, err := d.admin.DeleteGroup(ctx, r.Group)
		return nil, err
	case "delete_records":
		before := kadm.Offsets{}
		before.AddOffset(r.Topic, r.Partition, r.Before, -1)
		done, err := d.admin.DeleteRecords(ctx, before)
		if err == nil {
			err = done.Error()
		}
		if err != nil {
			return nil, err
		}
		return done[r.Topic][r.Partition].LowWatermark, nil
	case "offsets":
		earliest, err := d.admin.ListStartOffsets(ctx, r.Topic)
		if err != nil {
			return nil, err
		}
		latest, err := d.admin.ListEndOffsets(ctx, r.Topic)
		return map[string]int64{
			"earliest": earliest[r.Topic][r.Partition].Offset, "latest": latest[r.Topic][r.Partition].Offset,
		}, err
	}
	return nil, fmt.Errorf("unknown op %s", r.Op)
}

func main() {
	d := &driver{
		bootstrap: os.Args[1], members: map[string]*member{}, producers: map[string]*kgo.Client{}, begun: map[string]bool{},
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var r request
		err := json.Unmarshal(lines.Bytes(), &r)
		var answer any
		if err == nil {
			answer, err = d.handle(&r)
		}
		if err != nil {
			out.Encode(map[string]string{"error": err.Error()})
		} else {
			out.Encode(map[string]any{"ok": answer})
		}
	}
	for _, m := range d.members {
		m.close("")
	}
}
