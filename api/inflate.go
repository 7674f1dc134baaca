package api

import (
	"compress/gzip"
	"errors"
	"io"

	"connectrpc.com/connect"
)

// minCompressed is from how many bytes on answers are compressed where clients take that: less is not worth the CPU time, which was a fifth of that of a submit.
const minCompressed = 4 << 10

// bounded makes handlers unpack no more of a compressed message than they take. Connect itself keeps no more, but unpacks the rest to tell how long it is, which
// costs seconds of CPU for a few kilobytes.
func bounded() connect.HandlerOption {
	return connect.WithCompression("gzip",
		func() connect.Decompressor { return &inflater{} },
		func() connect.Compressor { return gzip.NewWriter(io.Discard) })
}

// inflater is a connect.Decompressor that fails after MaxRequest bytes and the one that shows that there are more.
type inflater struct {
	gzip.Reader
	left int64
}

var errInflated = errors.New("the rest is not unpacked")

// Read implements io.Reader.
func (i *inflater) Read(p []byte) (int, error) {
	if i.left <= 0 {
		return 0, errInflated
	}
	n, err := i.Reader.Read(p[:min(int64(len(p)), i.left)])
	i.left -= int64(n)
	return n, err //nolint:wrapcheck // io.EOF must stay what it is
}

// Reset implements connect.Decompressor.
func (i *inflater) Reset(r io.Reader) error {
	i.left = MaxRequest + 1
	return i.Reader.Reset(r) //nolint:wrapcheck // of a field of our own
}
