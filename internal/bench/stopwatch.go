package bench

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/each"
)

// stopwatch times what connections send, from the first byte sent to the last one read. Statements that are
// sent together, as in one pipelined transaction, count as one: that is how long locks are held.
type stopwatch struct {
	// work and queue are parts of the texts that tell the statements on the benchmark's tables, and those on the queue alone.
	work, queue string

	mu sync.Mutex
	// worked and queued are the times of the two sorts.
	worked, queued []time.Duration
}

var (
	_ pgx.QueryTracer = (*stopwatch)(nil)
	_ pgx.BatchTracer = (*stopwatch)(nil)
)

// underway is the statement being timed; it travels in the context that pgx hands back at the end.
type underway struct {
	began       time.Time
	work, queue bool
}

type underwayKey struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (s *stopwatch) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return s.begin(ctx, data.SQL)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (s *stopwatch) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	s.end(ctx)
}

// TraceBatchStart implements pgx.BatchTracer.
func (s *stopwatch) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	return s.begin(ctx, each.Of(data.Batch.QueuedQueries, func(query *pgx.QueuedQuery) string { return query.SQL })...)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (s *stopwatch) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (s *stopwatch) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	s.end(ctx)
}

func (s *stopwatch) begin(ctx context.Context, texts ...string) context.Context {
	names := func(part string) bool {
		return slices.ContainsFunc(texts, func(sql string) bool { return strings.Contains(sql, part) })
	}
	return context.WithValue(ctx, underwayKey{}, underway{work: names(s.work), queue: names(s.queue), began: time.Now()})
}

func (s *stopwatch) end(ctx context.Context) {
	u, ok := ctx.Value(underwayKey{}).(underway)
	if !ok {
		return
	}
	took := time.Since(u.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case u.work:
		s.worked = append(s.worked, took)
	case u.queue:
		s.queued = append(s.queued, took)
	}
}

// take hands over what was timed so far, and begins anew.
func (s *stopwatch) take() (worked, queued []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	worked, queued = s.worked, s.queued
	s.worked, s.queued = nil, nil
	return worked, queued
}
