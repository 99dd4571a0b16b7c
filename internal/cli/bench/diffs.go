package bench

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/bench"
	"sexton/internal/cli"
	"sexton/internal/extdiff"
	"sexton/internal/jobrun"
	riverjobs "sexton/river_jobs"
)

func benchDiffsCommand(env *cli.Env) *cobra.Command {
	var o bench.DiffsOptions
	cmd := clusterBenchmark(env, "diffs --scale 0.1 --big 1024", "Speed of moving diffs to object storage against plain uploads, and its memory",
		`Moves one diff of 256 MiB, 500 of 32 KiB and 20 of 8 MiB by the job migrate_external_diff, --workers at a time, and
uploads the same objects with the same library one by one, in turn. The job reads each object back and compares it, plain uploads do not.
Without --bucket the objects go to a temporary folder. In a bucket they stand under a prefix of the benchmark's own,
and are removed at the end; credentials come from the usual places.`,
		func() (measuredJob, error) {
			if o.Big > 1024 {
				return measuredJob{}, errors.New("--big must be at most 1024")
			}
			return measuredJob{
				kind: riverjobs.MigrateExternalDiff, environ: []string{"SEXTON_EXTERNAL_DIFFS__BUCKET=" + o.Bucket},
				file: "loose_foreign_keys: {enabled: false}\nexternal_diffs: {enabled: true}\n",
				duty: "SEXTON_LOOSE_FOREIGN_KEYS__DUTY", pass: passOf(diffPass),
			}, nil
		},
		o.Diffs)
	cmd.Flags().StringVar(&o.Bucket, "bucket", "", "`URL` of the store, as in external_diffs.bucket")
	sizeFlags(cmd, &o.Scale, &o.Rounds, "number of diffs")
	cmd.Flags().IntVar(&o.Big, "big", 256, "size of the one big diff in `MIB`, up to 1024")
	cmd.Flags().IntVar(&o.Workers, "workers", 8, "how many diffs the job moves at once, `N`, as external_diffs.max_workers")
	measure := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		env.Began = true
		var remove func() error
		if o.Bucket, remove, err = benchBucket(o.Bucket); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
		return measure(cmd, args)
	}
	return cmd
}

// benchBucket is a store of the benchmark's own: a prefix in a bucket, or a folder.
func benchBucket(bucket string) (own string, remove func() error, err error) {
	u, err := url.Parse(bucket)
	if err != nil || bucket != "" && u.Scheme != "file" && u.Scheme != "s3" {
		return "", nil, cli.Usage(errors.New("--bucket must be file:///folder or s3://bucket?region=…"))
	}
	if bucket == "" || u.Scheme == "file" {
		// A store makes no folder for a prefix.
		dir, err := os.MkdirTemp(u.Path, "sexton-bench-diffs-")
		if err != nil {
			return "", nil, fmt.Errorf("create folder for the benchmark's objects: %w", err)
		}
		return "file://" + dir, func() error { return os.RemoveAll(dir) }, nil
	}
	query := u.Query()
	query.Set("prefix", query.Get("prefix")+"sexton-bench-"+strings.ToLower(rand.Text())+"/")
	u.RawQuery = query.Encode()
	return u.String(), func() error { return nil }, nil
}

// diffPass holds the facts of a move that a benchmark needs.
func diffPass(report jobrun.Report, stats extdiff.Moved) bench.Pass {
	pass := bench.Pass{Rows: stats.Files, Finished: 1}
	if stats.Skipped != "" {
		pass.Trouble = "skipped: " + report.Reason
	}
	return pass
}
