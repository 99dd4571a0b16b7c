package blobstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// folder stores objects as files. The value is the absolute path of the folder.
type folder string

// path returns the path of an object's file, or an error if the key is invalid.
func (f folder) path(key string) (string, error) {
	if err := CheckKey(key); err != nil {
		return "", err
	}
	return filepath.Join(string(f), filepath.FromSlash(key)), nil
}

func (f folder) version(_ context.Context, key string) (Version, error) {
	name, err := f.path(key)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return "", fs.ErrNotExist
	}
	return Version(fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size())), nil
}

func (f folder) read(ctx context.Context, key string, offset, size int64) (io.ReadCloser, error) {
	if _, err := f.version(ctx, key); err != nil {
		return nil, err
	}
	file, err := os.Open(filepath.Join(string(f), filepath.FromSlash(key)))
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if size < 0 {
		return file, nil
	}
	return limited{io.LimitReader(file, size), file}, nil
}

// limited reads a limited number of bytes from a file.
type limited struct {
	io.Reader
	io.Closer
}

func (f folder) remove(_ context.Context, key string) error {
	name, err := f.path(key)
	if err != nil {
		return err
	}
	if err := os.Remove(name); err != nil {
		return err
	}
	if around := filepath.Dir(name); around != string(f) {
		// Remove deletes only files and empty folders.
		_ = os.Remove(around)
	}
	return nil
}

func (f folder) write(ctx context.Context, key string, over Version) (writer, error) {
	name, err := f.path(key)
	if err != nil {
		return nil, err
	}
	f.removeUnfinished(name)
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return nil, err
	}
	// The temporary file is in the folder of the object, because a rename works only
	// within one file system.
	file, err := os.OpenFile(name+"."+rand.Text()+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) //nolint:gosec // The umask decides.
	if err != nil {
		return nil, err
	}
	return &unfinished{File: file, folder: f, ctx: ctx, key: key, over: over}, nil
}

// removeUnfinished removes the temporary files of earlier writers of the object. The
// commit of a writer that is still running then fails.
func (f folder) removeUnfinished(name string) {
	around, base := filepath.Split(name)
	// Errors are ignored, because the new file does not depend on the old ones.
	left, _ := os.ReadDir(around)
	for _, file := range left {
		if strings.HasPrefix(file.Name(), base+".") && strings.HasSuffix(file.Name(), ".tmp") {
			_ = os.Remove(filepath.Join(around, file.Name()))
		}
	}
}

// unfinished is the temporary file of an object that is being written.
type unfinished struct {
	*os.File

	folder folder
	ctx    context.Context //nolint:containedctx // The context of the write.
	key    string
	over   Version
}

func (u *unfinished) abort() {
	_ = u.File.Close()
	_ = os.Remove(u.Name())
}

// commit replaces the object by the temporary file. It syncs the file and its folders,
// because a rename alone may be lost in a power failure.
func (u *unfinished) commit() (err error) {
	defer func() {
		if err != nil {
			_ = os.Remove(u.Name())
		}
	}()
	if u.ctx.Err() != nil {
		return errors.Join(u.ctx.Err(), u.File.Close())
	}
	if err := errors.Join(u.Sync(), u.File.Close()); err != nil {
		return err
	}
	// The rename does not check the version. Only a writer on another machine with the
	// same file system could write between this check and the rename. Leases exclude such
	// writers.
	found, err := u.folder.version(u.ctx, u.key)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if found != u.over {
		return ErrChanged
	}
	name := filepath.Join(string(u.folder), filepath.FromSlash(u.key))
	if err := os.Rename(u.Name(), name); err != nil {
		return err
	}
	for around := filepath.Dir(name); len(around) >= len(u.folder); around = filepath.Dir(around) {
		if err := flush(around); err != nil {
			return err
		}
	}
	return nil
}

// flush syncs a folder to disk.
func flush(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

func (f folder) list(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		stopped := false
		visit := func(name string, entry fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist) && name != string(f):
				return nil // The file was deleted during the walk, or the folder of the prefix does not exist yet.
			case err != nil:
				return err
			case ctx.Err() != nil:
				return ctx.Err()
			case entry.IsDir():
				return nil
			}
			relative, err := filepath.Rel(string(f), name)
			if err != nil {
				return err
			}
			key := filepath.ToSlash(relative)
			if !strings.HasPrefix(key, prefix) {
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
		top, _ := path.Split(prefix)
		if err := filepath.WalkDir(filepath.Join(string(f), filepath.FromSlash(top)), visit); err != nil && !stopped {
			yield(Info{}, err)
		}
	}
}

// unusable returns the reason for which the configured folder cannot be used, and the
// fix. It returns "" if the error has another cause.
func (f folder) unusable(err error) (reason, fix string) {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return reasonOf(err), "allow this user to write to the folder"
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(string(f)); os.IsNotExist(err) {
			return "the folder is missing", "create it, or mount its disk"
		}
	}
	return "", ""
}
