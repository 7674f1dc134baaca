package api

import "connectrpc.com/connect"

// NewHandlerWithBodyTimeout is NewHandler with another time for clients to send their requests.
var NewHandlerWithBodyTimeout = newHandler

// NewInflater returns what unpacks requests.
func NewInflater() connect.Decompressor { return &inflater{} }
