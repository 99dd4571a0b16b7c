package jobrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
)

// Each batch adds what it changes to sexton.run_counts of its own database, in its own transaction. A run that ends well knows its
// statistics, and its rows go. A process that died has not told them, and one that has lost a connection knows neither whether its last batch was
// committed nor, after a crash of the server, which of those were that did not wait for the disk. So the figures of a run that failed are
// what its batches have counted. Any process that works in the database hands that on. The runs are in the jobs database and the counts may be
// in another one, so the run keeps which counts it has been given and how much each was: after a process that dies between the two,
// the next one adds nothing twice.

// counted is the state of a row of run_counts when it was added to a run.
type counted struct {
	Field string `json:"field"`
	Label string `json:"label,omitempty"`
	Rows  int64  `json:"rows"`
}

// told removes the counts of a run whose statistics are recorded, from databases other than the jobs database: there they went with that.
func (r *Runner) told(ctx context.Context, log *slog.Logger, runID int64, result Result, written []database.Database) {
	for _, db := range written {
		if db.Name == r.Leases.Jobs.Name || !result.Changed {
			continue
		}
		if err := db.Queries().RunCountsTold(ctx, runID); err != nil {
			log.WarnContext(ctx, "counts of the run cannot be removed yet", "counted_in", db.Name, "error", err)
		}
	}
}

// settle hands the counts in a database on to the runs that have ended, and to failed, a run without any, if it is not 0. It says in the log what it
// cannot do, which is tried again within a minute.
func (r *Runner) settle(ctx context.Context, log *slog.Logger, db database.Database, failed int64) {
	found, err := db.AsyncQueries().RunCounts(ctx) // On a connection that is kept: a look each minute opens none.
	for len(found) > 0 && err == nil {
		n, runID := 1, found[0].RunID
		for n < len(found) && found[n].RunID == runID {
			n++
		}
		err = r.settleRun(ctx, log, db, runID, found[:n])
		found = found[n:]
		if runID == failed {
			failed = 0
		}
	}
	if failed > 0 && err == nil {
		err = r.settleRun(ctx, log, db, failed, nil)
	}
	if err != nil && ctx.Err() == nil {
		log.WarnContext(ctx, "counts of runs cannot be added to their statistics yet", "counted_in", db.Name, "error", err)
	}
}

// settleRun hands on the counts of one run, unless it has not ended.
func (r *Runner) settleRun(ctx context.Context, log *slog.Logger, db database.Database, runID int64, found []dbsqlc.RunCountsRow) error {
	var run dbsqlc.RunEndedRow
	var grown []Count
	err := pgx.BeginTxFunc(ctx, r.Leases.Jobs.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		queries := r.Leases.Jobs.Names.Queries(tx)
		if run, err = queries.RunEnded(ctx, runID); err != nil || run.Outcome != string(Failed) {
			return err
		}
		var stats, counted json.RawMessage
		if stats, counted, grown, err = r.merge(run, db.Name, found); err != nil {
			return err
		}
		return queries.RunCounted(ctx, stats, counted, runID)
	})
	unknown := errors.Is(err, pgx.ErrNoRows)
	switch {
	case unknown: // A crash of the jobs database's server may lose the row of a run, and the history ends some time.
	case err != nil:
		return fmt.Errorf("add counts to run %d: %w", runID, err)
	case run.Outcome == "":
		return nil // It is at work.
	}
	if r.Observer != nil && len(grown) > 0 {
		r.Observer.CountsAdded(run.Kind, run.Database, grown)
	}
	var ids, rows []int64
	for _, one := range found {
		ids, rows = append(ids, one.ID), append(rows, one.Rows)
	}
	dropped, err := db.Queries().RunCountsAdded(ctx, ids, rows, runID)
	if err != nil {
		return fmt.Errorf("remove counts of run %d: %w", runID, err)
	}
	if unknown && dropped > 0 { // A run that ended meanwhile has removed its counts itself.
		log.WarnContext(ctx, "counts of a run that is not in the history are dropped", "counted_in", db.Name, "counted_run_id", runID, "counts", found)
	}
	return nil
}

// merge returns a run's statistics as they were counted, which counts they have been given by now, and by how much the figures of metrics have grown.
func (r *Runner) merge(run dbsqlc.RunEndedRow, name string, found []dbsqlc.RunCountsRow) (stats, given json.RawMessage, grown []Count, err error) {
	known, fields := map[string]counted{}, map[string]json.RawMessage{}
	if run.Counted != nil {
		if err := json.Unmarshal(run.Counted, &known); err != nil {
			return nil, nil, nil, fmt.Errorf("read what was counted: %w", err)
		}
	}
	if err := json.Unmarshal(run.Stats, &fields); err != nil {
		return nil, nil, nil, fmt.Errorf("read statistics: %w", err)
	}
	before := sums(known)
	for _, one := range found {
		id := fmt.Sprintf("%s/%d", name, one.ID)
		known[id] = counted{Field: one.Field, Label: one.Label, Rows: one.Rows}
		var others []counted
		if one.Others != nil {
			if err := json.Unmarshal(one.Others, &others); err != nil {
				return nil, nil, nil, fmt.Errorf("read what else was counted: %w", err)
			}
		}
		for i, other := range others {
			known[fmt.Sprintf("%s/%d", id, i)] = other
		}
	}
	after, metrics := sums(known), map[string]string{}
	if r.Figures != nil {
		metrics = r.Figures(run.Kind)
	}
	for field := range metrics {
		if err := set(fields, field, after); err != nil {
			return nil, nil, nil, err
		}
	}
	for of, rows := range after {
		// A process that told the statistics has told the metrics, too.
		if metric := metrics[of.Field]; run.Counted != nil && metric != "" && rows > before[of] {
			grown = append(grown, Count{Metric: metric, Table: of.Label, N: rows - before[of]})
		}
	}
	if stats, err = json.Marshal(fields); err != nil {
		return nil, nil, nil, fmt.Errorf("write statistics: %w", err)
	}
	if given, err = json.Marshal(known); err != nil {
		return nil, nil, nil, fmt.Errorf("write what was counted: %w", err)
	}
	return stats, given, grown, nil
}

// untold returns what the observer has yet to hear of a run. Given are the counts that another process has handed on which took it for dead: that
// one has told the metrics, and those of a run that failed are all told as they are handed on.
func (r *Runner) untold(report Report, counts []Count, given []byte) (left []Count) {
	known := map[string]counted{}
	if given == nil || r.Figures == nil || json.Unmarshal(given, &known) != nil {
		return counts
	}
	metrics, byBatches, told := r.Figures(report.Kind), map[string]bool{}, map[Count]int64{}
	for _, metric := range metrics {
		byBatches[metric] = true
	}
	for of, rows := range sums(known) {
		told[Count{Metric: metrics[of.Field], Table: of.Label}] += rows
	}
	for _, count := range counts {
		if byBatches[count.Metric] && report.Outcome == Failed {
			continue
		}
		if count.N -= told[Count{Metric: count.Metric, Table: count.Table}]; count.N > 0 {
			left = append(left, count)
		}
	}
	return left
}

// figure is one in statistics.
type figure struct{ Field, Label string }

func sums(known map[string]counted) map[figure]int64 {
	total := map[figure]int64{}
	for _, one := range known {
		total[figure{one.Field, one.Label}] += one.Rows
	}
	return total
}

// set makes a field of statistics what was counted. A field without labels, and one of items that were worked off, is a number; the others are
// objects of numbers by label, and one with a name like "delete_count_by_table" has its sum in "delete_count".
func set(stats map[string]json.RawMessage, field string, counted map[figure]int64) (err error) {
	labels, sum := map[string]int64{}, int64(0)
	object := len(stats[field]) > 0 && stats[field][0] == '{'
	for of, rows := range counted {
		if of.Field == field {
			object = object || of.Label != "" && !strings.HasSuffix(field, "processed")
			labels[of.Label] = rows
			sum += rows
		}
	}
	number := json.RawMessage(strconv.FormatInt(sum, 10))
	switch {
	case object:
		if stats[field], err = json.Marshal(labels); err != nil {
			return fmt.Errorf("write %s: %w", field, err)
		}
		if total, ok := strings.CutSuffix(field, "_by_table"); ok {
			stats[total] = number
		}
	case sum > 0 || stats[field] != nil:
		stats[field] = number
	}
	return nil
}
