package bench

import (
	"context"
	"crypto/md5" //nolint:gosec // Postgres's md5() makes the same text
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
	"sexton/internal/each"
	"sexton/internal/exampleapp"
	"sexton/internal/jobrun"
	"sexton/internal/problem"
)

// plainUploads writes the same objects with the same library, one after the other, and does not read them back.
const plainUploads = "plain_uploads"

// DiffsOptions says what to measure.
type DiffsOptions struct {
	// Bucket is the URL of a store that is empty, to the cluster's job as well.
	Bucket string
	// Scale is a fraction of 500 small and 20 large diffs.
	Scale float64
	// Rounds are how often each variant works; another one begins in each round.
	Rounds int
	// Big is the size of one more diff, in MiB.
	Big int
	// Workers are how many diffs the job moves at once.
	Workers int
}

// diffStore is where diffs go, with what they consist of.
type diffStore struct {
	*blobstore.Store

	block []byte
	// workers are how many diffs the job moves at once. Plain uploads go one after the other.
	workers int
}

// Diffs moves diffs and uploads the same objects in turn. The cluster has to be one of the job that moves one diff to the bucket.
func (o *DiffsOptions) Diffs(ctx context.Context, g *Cluster) (_ *Report, err error) {
	store, err := blobstore.Open(ctx, o.Bucket, blobstore.Options{Key: "--bucket"})
	if err != nil {
		return nil, err
	}
	to := &diffStore{Store: store, block: newBlock(), workers: o.Workers}
	defer func() { err = errors.Join(err, to.clear(ctx)) }()
	// First, while the process is small.
	big, err := g.bigDiff(ctx, bigDiff(to, o.Big))
	if err != nil {
		return nil, fmt.Errorf("big diff: %w", err)
	}
	var sets, variants []Row
	for _, s := range diffSets(to, o.Scale) {
		found, err := g.compare(ctx, s, Options{Rounds: o.Rounds, Duty: fullDuty})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		set, lines := s.figures(found)
		sets, variants = append(sets, set), append(variants, lines...)
	}
	r := &Report{Row: Row{
		{"benchmark", "", "", "diffs"},
		{"server", "", "", g.Server},
		{"store", "", "", store.String()},
		{"scale", "", "", o.Scale},
		{"rounds", "", "", o.Rounds},
		{"max_workers", "", "", o.Workers},
		{"sets", "", "", sets},
		{"big_diff", "", "", big},
	}}
	r.show(variants...)
	r.show(big)
	r.notef("%d diffs at a time, read back and compared; plain uploads go one by one and are not; median of %d interleaved rounds", o.Workers, o.Rounds)
	r.notef("statements are the ones that change rows; memory is that of this process, the benchmark included; scale %g; %s; %s",
		o.Scale, store.String(), g.Server)
	return r, nil
}

// bigDiff moves one diff and watches the memory.
func (g *Cluster) bigDiff(ctx context.Context, s diffSet) (figures Row, err error) {
	g.Progress("making a diff of %d MiB", s.bytes()/mib)
	err = g.with(ctx, s.source(), func(data *template) error {
		g.Progress("moving it")
		forgetPeak()
		before := rss()
		m, _, err := g.measure(ctx, data, s.trial(1), s.moving(), fullDuty, nil)
		peak, statements := memory("/proc/self/status", "VmHWM:"), jobrun.PercentilesOf(m.times)
		figures = Row{
			{"bytes", "", "", s.bytes()},
			{"", "", "one diff of %d MiB", s.bytes() / mib},
			{"seconds", "seconds", "%.2f", round(m.took.Seconds(), 3)},
			{"mb_per_second", "MB/s", "%.1f", speed(s.bytes(), m.took)},
			{"statement_ms", "", "", statements},
			{"", "statement max ms", "%.1f", statements.Max},
			// The most that this process had in memory, the benchmark itself included, and what it had when the job began.
			{"peak_rss_bytes", "", "", peak},
			{"", "peak memory MiB", "%.1f", mebibytes(peak)},
			{"rss_before_bytes", "", "", before},
			{"", "MiB before", "%.1f", mebibytes(before)},
		}
		return err
	})
	return figures, err
}

// figures are those of a set, and the lines of its variants. A MB are a million bytes. The ratio is the job's speed by that of plain uploads.
func (s diffSet) figures(found comparison) (set Row, lines []Row) {
	speeds := each.Of(found.variants, func(v outcome) float64 { return speed(s.bytes(), v.took) })
	toPlain := ratio(speeds[1], speeds[0])
	var variants []Row
	for i, v := range found.variants {
		objects := round(float64(s.Diffs)/v.took.Seconds(), 1)
		row := slices.Concat(variantFigure("contender", v.name), Row{
			{"seconds", "seconds", "%.2f", round(v.took.Seconds(), 3)},
			{"mb_per_second", "MB/s", "%.1f", speeds[i]},
			{"objects_per_second", "objects/s", "%.1f", objects},
			// The sendings of all rounds: one for the diffs of a transaction; plain uploads have none.
			{"statements", "", "", v.sent},
			{"statement_ms", "", "", v.statementMS},
			{"", "statement p99 ms", "%.1f", v.statementMS.P99},
			{"", "max ms", "%.1f", v.statementMS.Max},
		})
		variants = append(variants, row)
		shown := Figure{"", "/ plain uploads", "%.2f", nil}
		if v.name == sexton {
			shown.Value = toPlain
		}
		of := Row{{"", "set", "%s", s.name}, {"", "objects", "%d", s.Diffs}, {"", "KiB each", "%d", s.objectBytes() / kib}}
		lines = append(lines, slices.Concat(of, row, Row{shown}))
	}
	return Row{
		{"set", "", "", s.name},
		{"objects", "", "", s.Diffs},
		{"object_bytes", "", "", s.objectBytes()},
		{"contenders", "", "", variants},
		{"ratio_to_plain_uploads", "", "", toPlain},
	}, lines
}

func speed(size int64, took time.Duration) float64 { return round(float64(size)/1e6/took.Seconds(), 2) }

func (s diffSet) variants() []variant {
	return []variant{{name: plainUploads, prepare: s.clearStore, drain: s.upload}, s.moving()}
}

func (s diffSet) moving() variant {
	return variant{name: sexton, drain: s.move, prepare: func(ctx context.Context, p *dataCopy) error {
		if err := s.to.clear(ctx); err != nil {
			return err
		}
		return openWorker(ctx, p)
	}}
}

func (s diffSet) clearStore(ctx context.Context, _ *dataCopy) error { return s.to.clear(ctx) }

// upload is the yardstick.
func (s diffSet) upload(ctx context.Context, _ *dataCopy) error {
	for id := range s.Diffs {
		if _, err := s.to.Put(ctx, fmt.Sprintf("plain/diff-%d", id+1), "", s.write); err != nil {
			return err
		}
	}
	return nil
}

// move runs the job for each diff, some at once.
func (s diffSet) move(ctx context.Context, p *dataCopy) error {
	err := atOnce(ctx, s.to.workers, s.Diffs, func(ctx context.Context, n int64) error {
		pass, err := p.workers[0].Pass(ctx, json.RawMessage(fmt.Sprintf(`{"diff_id": %d}`, n+1)))
		if err == nil && pass.Trouble != "" {
			err = errors.New(pass.Trouble)
		}
		return problem.Doing(err, "move diff %d", n+1)
	})
	p.times, _ = p.trial.watch.take()
	return err
}

// clear removes what a variant has written, also after an interruption.
func (to *diffStore) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for object, err := range to.List(ctx, "") {
		if err == nil {
			err = to.Delete(ctx, object.Key)
		}
		if err != nil && !errors.Is(err, blobstore.ErrNotFound) {
			return fmt.Errorf("remove objects of the benchmark: %w", err)
		}
	}
	return nil
}

const (
	kib = 1 << 10
	mib = 1 << 20
	// bigFile is the length of each file of the big diff: no text of Postgres may have 1 GiB.
	bigFile = 16 * mib
)

// diffSet are diffs that are all alike.
type diffSet struct {
	name string
	// Diffs have Files each, of FileBytes bytes; those are below 1 MiB or a multiple of it.
	Diffs, Files, FileBytes int64

	to *diffStore
}

// diffSets are objects that go in one request each, and objects that go in parts.
func diffSets(to *diffStore, scale float64) []diffSet {
	return []diffSet{
		{name: "small", Diffs: max(2, int64(500*scale)), Files: 4, FileBytes: 8 * kib, to: to},
		{name: "large", Diffs: max(1, int64(20*scale)), Files: 8, FileBytes: mib, to: to},
	}
}

// bigDiff is one diff of so many MiB.
func bigDiff(to *diffStore, size int) diffSet {
	s := diffSet{name: "big", Diffs: 1, Files: 1, FileBytes: int64(size) * mib, to: to}
	if s.FileBytes > bigFile {
		s.Files, s.FileBytes = (s.FileBytes+bigFile-1)/bigFile, bigFile
	}
	return s
}

func (s diffSet) title() string { return s.name }

func (s diffSet) size() int64 { return s.Diffs }

// transaction is not asked for: these benchmarks have no foreground.
func (diffSet) transaction(context.Context, *pgx.Conn) error { return nil }

func (s diffSet) objectBytes() int64 { return s.Files * s.FileBytes }

func (s diffSet) bytes() int64 { return s.Diffs * s.objectBytes() }

// newBlock is the text of 1 MiB of which the texts in the database consist.
func newBlock() []byte {
	block := make([]byte, 0, mib)
	for n := 1; len(block) < mib; n++ {
		sum := md5.Sum([]byte(strconv.Itoa(n))) //nolint:gosec // see the import
		block = hex.AppendEncode(block, sum[:])
	}
	return block
}

func (s diffSet) source() source {
	return source{create: exampleapp.Schema(), fill: statements("diffs_fill.sql", s)}
}

// write sends the content of one object.
func (s diffSet) write(w io.Writer) error {
	for range s.Files {
		for left := s.FileBytes; left > 0; left -= mib {
			if _, err := w.Write(s.to.block[:min(left, mib)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// trial demands that every diff is moved, with the bytes that it had.
func (s diffSet) trial(int64) trial {
	sum := sha256.New()
	_ = s.write(sum) // Which never fails.
	return trial{
		watch: &stopwatch{work: `UPDATE "public".merge_request_diff`, queue: tombstones},
		leftovers: fmt.Sprintf(`SELECT CASE WHEN moved <> %[1]d OR texts <> 0 THEN
				(%[1]d - moved) || ' of %[1]d diffs that were not moved as they must be, and ' || texts || ' texts in the database,' END
			FROM (
				SELECT count(*) AS moved FROM merge_request_diffs AS diff JOIN sexton.external_diffs AS ledger ON ledger.diff_id = diff.id
				WHERE diff.stored_externally AND ledger.size = %[2]d AND ledger.sha256 = '\x%[3]x'
			) AS a, (SELECT count(*) AS texts FROM merge_request_diff_files WHERE diff IS NOT NULL) AS b`, s.Diffs, s.objectBytes(), sum.Sum(nil)),
	}
}
