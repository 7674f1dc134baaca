package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/waterclock-io/waterclock/store"
)

// lockFile is the name of the file that stands for the hold on a data folder.
const lockFile = "waterclock.lock"

// FolderLock is the hold of this process on a data folder. The kernel lets go of it when the process ends, however it ends.
type FolderLock struct {
	file *os.File
	once sync.Once
	err  error
}

// inheritedFor is how long the hold of a process that has died is waited for: a child that it was starting has it until it begins its own program.
const inheritedFor = time.Second

// LockFolder takes hold of a data folder, which must exist, for as long as the process lives or until Unlock. Where another process, or another part of
// this one, holds it, the error wraps store.ErrHeld and names the process id of the holder.
func LockFolder(dir string) (*FolderLock, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	for over := time.Now().Add(inheritedFor); ; {
		err = flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || alive(f) || time.Now().After(over) {
			break
		}
		time.Sleep(inheritedFor / 50) // the kernel tells nobody; no context bounds the wait, as it is short
	}
	if err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is locked by process %s: %w", dir, holder(f), store.ErrHeld)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// The file stays where it is after Unlock: removing it would let two processes hold locks on two files of one name.
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(append(strconv.AppendInt(nil, int64(os.Getpid()), 10), '\n'), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write process id to %s: %w", path, err), f.Close())
	}
	return &FolderLock{file: f}, nil
}

// Unlock lets go of the folder. It may be called more than once.
func (l *FolderLock) Unlock() error {
	// Said, and not left to the close: a process that this one is about to start has the file too, until it begins its own program.
	l.once.Do(func() { l.err = errors.Join(flock(l.file, syscall.LOCK_UN), l.file.Close()) })
	return l.err
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// alive tells whether the process that wrote its id is there. Where none is written yet, or it cannot be told, it may be.
func alive(f *os.File) bool {
	pid, err := strconv.Atoi(holder(f))
	return err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// holder reads the process id that the holder wrote; it may be about to write it.
func holder(f *os.File) string {
	b := make([]byte, 20)
	n, _ := f.ReadAt(b, 0)
	if pid := bytes.TrimSpace(b[:n]); len(pid) > 0 {
		return string(pid)
	}
	return "(id not written yet)"
}
