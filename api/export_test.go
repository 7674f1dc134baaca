package api

// NewHandlerWithBodyTimeout is NewHandler with another time for clients to send their requests.
var NewHandlerWithBodyTimeout = newHandler
