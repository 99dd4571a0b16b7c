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
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
	"sexton/internal/exampleapp"
	"sexton/internal/latency"
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
	// Rounds are how often each variant works; they take turns in who begins.
	Rounds int
	// Big is the size of one more diff, in MiB.
	Big int
	// Workers are how many diffs the job moves at once.
	Workers int
}

// DiffsReport compares the move of diffs with plain uploads of the same objects.
type DiffsReport struct {
	Benchmark string `json:"benchmark"`
	Server    Server `json:"server"`
	// Store names the store without its parameters.
	Store  string  `json:"store"`
	Scale  float64 `json:"scale"`
	Rounds int     `json:"rounds"`
	// Workers are how many diffs the job moved at once. Plain uploads go one after the other.
	Workers int       `json:"max_workers"`
	Sets    []DiffSet `json:"sets"`
	Big     BigDiff   `json:"big_diff"`
}

// DiffSet are diffs of one size.
type DiffSet struct {
	Set         string        `json:"set"`
	Objects     int64         `json:"objects"`
	ObjectBytes int64         `json:"object_bytes"`
	Variants    []DiffVariant `json:"contenders"`
	// Ratio is the job's speed by that of plain uploads.
	Ratio float64 `json:"ratio_to_plain_uploads"`
}

// DiffVariant is one way, and what it took. A MB are a million bytes.
type DiffVariant struct {
	Variant          string  `json:"contender"`
	Seconds          float64 `json:"seconds"`
	MBPerSecond      float64 `json:"mb_per_second"`
	ObjectsPerSecond float64 `json:"objects_per_second"`
	// Statements counts the sendings of statements that change rows, of all rounds: one for the diffs of a transaction; plain uploads have
	// none.
	Statements  int                 `json:"statements"`
	StatementMS latency.Percentiles `json:"statement_ms"`
}

// BigDiff is one diff that the job moves by itself.
type BigDiff struct {
	Bytes       int64   `json:"bytes"`
	Seconds     float64 `json:"seconds"`
	MBPerSecond float64 `json:"mb_per_second"`
	// PeakRSSBytes is the most that this process had in memory, the benchmark itself included, RSSBefore what it had when the job
	// began; null where the system does not tell.
	PeakRSSBytes *int64              `json:"peak_rss_bytes"`
	RSSBefore    *int64              `json:"rss_before_bytes"`
	StatementMS  latency.Percentiles `json:"statement_ms"`
}

// diffCluster is a Cluster with a store.
type diffCluster struct {
	*Cluster

	store   *blobstore.Store
	block   []byte
	workers int
}

// Diffs moves diffs and uploads the same objects in turn. The cluster has to be one of the job that moves one diff to the bucket.
func (o *DiffsOptions) Diffs(ctx context.Context, g *Cluster) (_ Report, err error) {
	store, err := blobstore.Open(ctx, o.Bucket, blobstore.Options{Key: "--bucket"})
	if err != nil {
		return nil, err
	}
	d := diffCluster{Cluster: g, store: store, block: newBlock(), workers: o.Workers}
	r := &DiffsReport{Benchmark: "diffs", Server: g.Server, Store: store.String(), Scale: o.Scale, Rounds: o.Rounds, Workers: o.Workers}
	// First, while the process is small.
	if r.Big, err = d.big(ctx, bigDiff(o.Big)); err != nil {
		return nil, fmt.Errorf("big diff: %w", err)
	}
	for _, s := range diffSets(o.Scale) {
		set, err := d.compare(ctx, s, o.Rounds)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		r.Sets = append(r.Sets, set)
	}
	return r, nil
}

// big moves one diff and watches the memory.
func (g diffCluster) big(ctx context.Context, s diffSet) (_ BigDiff, err error) {
	g.Progress("making a diff of %d MiB", s.bytes()/mib)
	data, err := g.template(ctx, exampleapp.Schema(), "", s.fill()...)
	if err != nil {
		return BigDiff{}, err
	}
	defer func() { err = errors.Join(err, data.drop()) }()
	g.Progress("moving it")
	forgetPeak()
	b := BigDiff{Bytes: s.bytes(), RSSBefore: rss()}
	m, err := g.move(ctx, data, s)
	if err != nil {
		return b, err
	}
	b.PeakRSSBytes = memory("/proc/self/status", "VmHWM:")
	b.Seconds, b.MBPerSecond, b.StatementMS = round(m.took.Seconds(), 3), speed(b.Bytes, m.took), latency.Of(m.times)
	return b, nil
}

// compare lets both variants work on a set, round by round.
func (g diffCluster) compare(ctx context.Context, s diffSet, rounds int) (set DiffSet, err error) {
	g.Progress("%s: making %d diffs of %d KiB", s.name, s.diffs, s.objectBytes()/kib)
	set = DiffSet{Set: s.name, Objects: s.diffs, ObjectBytes: s.objectBytes()}
	data, err := g.template(ctx, exampleapp.Schema(), "", s.fill()...)
	if err != nil {
		return set, err
	}
	defer func() { err = errors.Join(err, data.drop()) }()
	names := []string{plainUploads, sexton}
	took, times := map[string][]time.Duration{}, map[string][]time.Duration{}
	err = inTurn(rounds, names, func(round int, name string) error {
		g.Progress("%s: round %d of %d, %s", s.name, round, rounds, name)
		work := g.move
		if name == plainUploads {
			work = g.upload
		}
		m, err := work(ctx, data, s)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		took[name], times[name] = append(took[name], m.took), append(times[name], m.times...)
		return nil
	})
	if err != nil {
		return set, err
	}
	for _, name := range names {
		t := median(took[name])
		set.Variants = append(set.Variants, DiffVariant{
			Variant: name, Seconds: round(t.Seconds(), 3), MBPerSecond: speed(s.bytes(), t), ObjectsPerSecond: round(float64(s.diffs)/t.Seconds(), 1),
			Statements: len(times[name]), StatementMS: latency.Of(times[name]),
		})
	}
	set.Ratio = ratio(set.Variants[1].MBPerSecond, set.Variants[0].MBPerSecond)
	return set, nil
}

func speed(size int64, took time.Duration) float64 { return round(float64(size)/1e6/took.Seconds(), 2) }

// upload is the yardstick.
func (g diffCluster) upload(ctx context.Context, _ *template, s diffSet) (m measured, err error) {
	defer func() { err = errors.Join(err, g.clear(ctx)) }()
	began := time.Now()
	for id := range s.diffs {
		_, err := g.store.Put(ctx, fmt.Sprintf("plain/diff-%d", id+1), "", func(w io.Writer) error { return s.write(g.block, w) })
		if err != nil {
			return m, err
		}
	}
	m.took = time.Since(began)
	return m, nil
}

// move runs the job for each diff, some at once, on a fresh copy.
func (g diffCluster) move(ctx context.Context, data *template, s diffSet) (m measured, err error) {
	defer func() { err = errors.Join(err, g.clear(ctx)) }()
	watch := &stopwatch{work: `UPDATE "public".merge_request_diff`, queue: tombstones}
	p, err := g.copyOf(ctx, data, trial{watch: watch}, fullDuty, openWorker)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, p.drop()) }()
	began := time.Now()
	err = atOnce(ctx, g.workers, s.diffs, func(ctx context.Context, n int64) error {
		pass, err := p.workers[0].Pass(ctx, json.RawMessage(fmt.Sprintf(`{"diff_id": %d}`, n+1)))
		if err == nil && pass.Trouble != "" {
			err = errors.New(pass.Trouble)
		}
		return problem.Doing(err, "move diff %d", n+1)
	})
	if err != nil {
		return m, err
	}
	m.took = time.Since(began)
	m.times, _ = watch.take()
	want, err := s.digest(g.block)
	if err != nil {
		return m, err
	}
	return m, s.check(ctx, p.conn, want)
}

// clear removes what a variant has written, also after an interruption.
func (g diffCluster) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for object, err := range g.store.List(ctx, "") {
		if err == nil {
			err = g.store.Delete(ctx, object.Key)
		}
		if err != nil && !errors.Is(err, blobstore.ErrNotFound) {
			return fmt.Errorf("remove objects of the benchmark: %w", err)
		}
	}
	return nil
}

// Text writes a table, the ratios and the big diff.
func (r *DiffsReport) Text(w io.Writer) {
	_, _ = fmt.Fprintln(w, "set\tobjects\tKiB each\tvariant\tseconds\tMB/s\tobjects/s\tstatement p99 ms\tmax ms\t/ plain uploads")
	for _, s := range r.Sets {
		for i, c := range s.Variants {
			to := ""
			if i > 0 {
				to = fmt.Sprintf("%.2f", s.Ratio)
			}
			_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%.2f\t%.1f\t%.1f\t%.1f\t%.1f\t%s\n", s.Set, s.Objects, s.ObjectBytes/kib, words(c.Variant),
				c.Seconds, c.MBPerSecond, c.ObjectsPerSecond, c.StatementMS.P99, c.StatementMS.Max, to)
		}
	}
	_, _ = fmt.Fprintf(w, "\none diff of %d MiB\t%.2f s\t%.1f MB/s\tstatement max %.1f ms\n",
		r.Big.Bytes/mib, r.Big.Seconds, r.Big.MBPerSecond, r.Big.StatementMS.Max)
	if r.Big.PeakRSSBytes != nil && r.Big.RSSBefore != nil {
		_, _ = fmt.Fprintf(w, "peak memory meanwhile\t%.1f MiB\t%.1f MiB before\n", float64(*r.Big.PeakRSSBytes)/mib, float64(*r.Big.RSSBefore)/mib)
	}
	_, _ = fmt.Fprintf(w, "\n%d diffs at a time, read back and compared; plain uploads go one by one and are not; median of %d interleaved rounds\n",
		r.Workers, r.Rounds)
	_, _ = fmt.Fprintf(w, "statements are the ones that change rows; memory is that of this process, the benchmark included; scale %g; %s; %s\n",
		r.Scale, r.Store, r.Server)
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
	// diffs have files each, of fileBytes bytes; those are below 1 MiB or a multiple of it.
	diffs, files, fileBytes int64
}

// diffSets are objects that go in one request each, and objects that go in parts.
func diffSets(scale float64) []diffSet {
	return []diffSet{
		{name: "small", diffs: max(2, int64(500*scale)), files: 4, fileBytes: 8 * kib},
		{name: "large", diffs: max(1, int64(20*scale)), files: 8, fileBytes: mib},
	}
}

// bigDiff is one diff of so many MiB.
func bigDiff(size int) diffSet {
	s := diffSet{name: "big", diffs: 1, files: 1, fileBytes: int64(size) * mib}
	if s.fileBytes > bigFile {
		s.files, s.fileBytes = (s.fileBytes+bigFile-1)/bigFile, bigFile
	}
	return s
}

func (s diffSet) objectBytes() int64 { return s.files * s.fileBytes }

func (s diffSet) bytes() int64 { return s.diffs * s.objectBytes() }

// blockSQL is a text of 1 MiB that Postgres finds nothing to compress in.
const blockSQL = "(SELECT string_agg(md5(n::text), '' ORDER BY n) FROM generate_series(1, 32768) AS n)"

// newBlock is blockSQL.
func newBlock() []byte {
	block := make([]byte, 0, mib)
	for n := 1; len(block) < mib; n++ {
		sum := md5.Sum([]byte(strconv.Itoa(n))) //nolint:gosec // see the import
		block = hex.AppendEncode(block, sum[:])
	}
	return block
}

// fill are the statements that fill the tables of the reference application.
func (s diffSet) fill() []string {
	return []string{
		"INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group')",
		"INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project')",
		"INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) VALUES (1, 1, 'title', 'branch', 'main')",
		fmt.Sprintf(`INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count)
			SELECT id, 1, 1, %d FROM generate_series(1, %d) AS id`, s.files, s.diffs),
		fmt.Sprintf(`INSERT INTO merge_request_diff_files (
				merge_request_diff_id, relative_order, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, new_path, "binary", diff
			)
			SELECT id, file, false, false, false, false, '100644', '100644', to_char(file, '0000'), to_char(file, '0000'), false, text.diff
			FROM generate_series(1, %d) AS id, generate_series(0, %d) AS file, (SELECT left(repeat(%s, %d), %d) AS diff OFFSET 0) AS text`,
			s.diffs, s.files-1, blockSQL, (s.fileBytes+mib-1)/mib, s.fileBytes),
	}
}

// write sends the content of one object.
func (s diffSet) write(block []byte, w io.Writer) error {
	for range s.files {
		for left := s.fileBytes; left > 0; left -= mib {
			if _, err := w.Write(block[:min(left, mib)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// digest is that of each object.
func (s diffSet) digest(block []byte) (blobstore.Digest, error) {
	sum := sha256.New()
	err := s.write(block, sum)
	d := blobstore.Digest{Size: s.objectBytes()}
	sum.Sum(d.SHA256[:0])
	return d, err
}

// check reports whether every diff has been moved, with the bytes that it had.
func (s diffSet) check(ctx context.Context, conn *pgx.Conn, want blobstore.Digest) error {
	var moved, texts int64
	err := conn.QueryRow(ctx, `
		SELECT
			(SELECT count(*) FROM merge_request_diffs AS diff JOIN sexton.external_diffs AS ledger ON ledger.diff_id = diff.id
			WHERE diff.stored_externally AND ledger.size = $1 AND ledger.sha256 = $2),
			(SELECT count(*) FROM merge_request_diff_files WHERE diff IS NOT NULL)`, want.Size, want.SHA256[:]).Scan(&moved, &texts)
	if err != nil {
		return fmt.Errorf("count moved diffs: %w", err)
	}
	if moved != s.diffs || texts != 0 {
		return fmt.Errorf("%d of %d diffs were moved as they must be, %d texts are left in the database", moved, s.diffs, texts)
	}
	return nil
}
