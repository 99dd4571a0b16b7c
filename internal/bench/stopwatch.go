package bench

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// stopwatch times what connections send, from the first byte sent to the last one read. Statements that are
// sent together, as in one pipelined transaction, count as one: that is how long locks are held.
type stopwatch struct {
	mu sync.Mutex
	// children are those about a child table, queue those about tombstones alone.
	children, queue []time.Duration
}

var (
	_ pgx.QueryTracer = (*stopwatch)(nil)
	_ pgx.BatchTracer = (*stopwatch)(nil)
)

// underway is what is being timed; it travels in the context that pgx hands back at the end.
type underway struct {
	began           time.Time
	children, queue bool
}

type underwayKey struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (s *stopwatch) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return begin(ctx, data.SQL)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (s *stopwatch) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	s.end(ctx)
}

// TraceBatchStart implements pgx.BatchTracer.
func (s *stopwatch) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	texts := make([]string, len(data.Batch.QueuedQueries))
	for i, query := range data.Batch.QueuedQueries {
		texts[i] = query.SQL
	}
	return begin(ctx, texts...)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (s *stopwatch) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (s *stopwatch) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	s.end(ctx)
}

func begin(ctx context.Context, texts ...string) context.Context {
	names := func(table string) bool {
		return slices.ContainsFunc(texts, func(sql string) bool { return strings.Contains(sql, table) })
	}
	return context.WithValue(ctx, underwayKey{}, underway{children: names("children"), queue: names(tombstones), began: time.Now()})
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
	case u.children:
		s.children = append(s.children, took)
	case u.queue:
		s.queue = append(s.queue, took)
	}
}

// take hands over what was timed so far, and begins anew.
func (s *stopwatch) take() (children, queue []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	children, queue = s.children, s.queue
	s.children, s.queue = nil, nil
	return children, queue
}
