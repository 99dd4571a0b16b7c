package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
)

// Identity names the store as String does, with the prefix and the endpoint: two stores have the same only where they are one. It
// holds nothing secret.
func (s *Store) Identity() string { return s.identity }

// Get reads a small object as a whole, and tells when it was written by the store's own clock. One of more than most bytes is an
// error.
func (s *Store) Get(ctx context.Context, key string, most int64) (content []byte, written time.Time, err error) {
	reader, err := s.bucket.NewReader(ctx, key, nil)
	if err != nil {
		return nil, time.Time{}, s.judge(ctx, "read", key, err)
	}
	defer func() { _ = reader.Close() }()
	content, err = io.ReadAll(io.LimitReader(reader, most+1))
	switch {
	case err != nil:
		return nil, time.Time{}, s.judge(ctx, "read", key, err)
	case int64(len(content)) > most:
		return nil, time.Time{}, fmt.Errorf("read %s in %s: it has more than %d bytes", key, s.label, most)
	}
	return content, reader.ModTime(), nil
}

// ListAfter goes through the objects whose keys begin with prefix, which ends with a slash, and come after the key after, in an
// order that is always the same. It costs as much as what it lists, wherever that begins. It ends at the first error.
func (s *Store) ListAfter(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	if s.kind == Local {
		return s.walkAfter(ctx, prefix, after)
	}
	return s.list(ctx, prefix, &blob.ListOptions{Prefix: prefix, BeforeList: func(as func(any) bool) error {
		var request *s3.ListObjectsV2Input
		if as(&request) && after != "" && request.ContinuationToken == nil {
			request.StartAfter = aws.String(s.prefix + after)
		}
		return nil
	}})
}

// walkAfter walks the folders in their order, not that of the keys: "mr-1" comes before "mr-1.old" here, but "mr-1.old" before
// "mr-1/diff-1" there.
func (s *Store) walkAfter(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	behind := inWalk(after)
	return func(yield func(Info, error) bool) {
		stopped := false
		visit := func(name string, entry fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist) && name != s.folder:
				return nil // Gone meanwhile, or nothing was ever written.
			case err != nil:
				return err
			case ctx.Err() != nil:
				return ctx.Err()
			}
			relative, err := filepath.Rel(s.folder, name)
			if err != nil {
				return err
			}
			key := filepath.ToSlash(relative)
			if entry.IsDir() {
				if inWalk(key) < behind && !strings.HasPrefix(after, key+"/") && key != "." {
					return fs.SkipDir
				}
				return nil
			}
			if inWalk(key) <= behind {
				return nil
			}
			info, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if !yield(Info{Key: key, Size: info.Size(), ModTime: info.ModTime()}, nil) {
				stopped = true
				return fs.SkipAll
			}
			return nil
		}
		err := filepath.WalkDir(filepath.Join(s.folder, filepath.FromSlash(path.Clean(prefix))), visit)
		if err != nil && !stopped {
			yield(Info{}, s.judge(ctx, "list", prefix, err))
		}
	}
}

// inWalk sorts as a walk goes: what is in a folder comes before what follows the folder.
func inWalk(key string) string { return strings.ReplaceAll(key, "/", "\x00") }
