"""Thrift over sockets: framed transport, binary protocol, the calls of `idl/*.thrift`.

`idl` loads the IDL; `wire` turns structs into bytes and back; `frames` cuts a stream of bytes into frames; `protocol`
puts these together into calls and replies. None of them does I/O. `server` and `connection` move the bytes with trio,
`blocking` and `pool` with plain sockets. thriftpy2 reads the IDL and makes the classes; the bytes are coded in `wire`
(the reasons are given there), byte for byte what thriftpy2 and Apache Thrift write.
"""
