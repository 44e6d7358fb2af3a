import { BinaryReader, BinaryWriter } from '@bufbuild/protobuf/wire'
import {
  eachField,
  nested,
  noHeader,
  readHeader,
  readKeyValue,
  emptyKeyValue,
  writeBytes,
  writeInt64,
  writeNested,
  type KeyValue,
  type ResponseHeader,
} from './etcd-messages.ts'

/** Encoding and decoding of etcd's messages for leases, watches and authentication (rpc.proto), as in etcd-messages.ts. */

/** The answer to a request for a new lease, or for the renewal of one. */
export interface LeaseResponse {
  header: ResponseHeader
  ID: string
  /** Lifetime of the lease in seconds. */
  TTL: string
}

/** The request that starts a watch. */
export interface WatchCreateRequest {
  readonly key: Buffer
  readonly range_end: Buffer
  readonly start_revision: number
}

/** One change of a key in a watch. */
export interface EtcdEvent {
  readonly isDelete: boolean
  readonly kv: KeyValue
}

/** One message of a watch. */
export interface WatchResponse {
  header: ResponseHeader
  canceled: boolean
  compact_revision: string
  cancel_reason: string
  readonly events: EtcdEvent[]
}

/** A token of etcd's own authentication, for the metadata of later calls. */
export interface AuthenticateResponse {
  header: ResponseHeader
  token: string
}

/** Encodes etcd's LeaseGrantRequest, which asks for a new lease. */
export function encodeLeaseGrant({ TTL }: { readonly TTL: number }): Uint8Array {
  const writer = new BinaryWriter()
  writeInt64(writer, 1, TTL)
  return writer.finish()
}

/** Encodes a LeaseRevokeRequest or LeaseKeepAliveRequest, which have the same form. */
export function encodeLeaseId({ ID }: { readonly ID: string }): Uint8Array {
  const writer = new BinaryWriter()
  writeInt64(writer, 1, ID)
  return writer.finish()
}

/** Decodes a LeaseGrantResponse or LeaseKeepAliveResponse. */
export function decodeLease(bytes: Uint8Array): LeaseResponse {
  const reader = new BinaryReader(bytes)
  const response: LeaseResponse = { header: noHeader, ID: '0', TTL: '0' }
  eachField(reader, bytes.length, (field) => {
    if (field === 1) response.header = nested(reader, readHeader)
    else if (field === 2) response.ID = String(reader.int64())
    else if (field === 3) response.TTL = String(reader.int64())
    else return false
    return true
  })
  return response
}

/** Decodes only the header of an etcd response. */
export function decodeHeader(bytes: Uint8Array): { readonly header: ResponseHeader } {
  const reader = new BinaryReader(bytes)
  const response = { header: noHeader }
  eachField(reader, bytes.length, (field) => {
    if (field !== 1) return false
    response.header = nested(reader, readHeader)
    return true
  })
  return response
}

/** Encodes etcd's AuthenticateRequest, which exchanges a password for a token. */
export function encodeAuthenticate({ name, password }: { readonly name: string; readonly password: string }): Uint8Array {
  const writer = new BinaryWriter()
  writeBytes(writer, 1, Buffer.from(name))
  writeBytes(writer, 2, Buffer.from(password))
  return writer.finish()
}

/** Decodes an AuthenticateResponse. */
export function decodeAuthenticate(bytes: Uint8Array): AuthenticateResponse {
  const reader = new BinaryReader(bytes)
  const response = { header: noHeader, token: '' }
  eachField(reader, bytes.length, (field) => {
    if (field === 1) response.header = nested(reader, readHeader)
    else if (field === 2) response.token = reader.string()
    else return false
    return true
  })
  return response
}

/** Encodes a WatchRequest that starts a watch. */
export function encodeWatchCreate({ key, range_end, start_revision }: WatchCreateRequest): Uint8Array {
  const writer = new BinaryWriter()
  writeNested(writer, 1, (inner) => {
    writeBytes(inner, 1, key)
    writeBytes(inner, 2, range_end)
    writeInt64(inner, 3, start_revision)
  })
  return writer.finish()
}

/** Decodes a WatchResponse. Its keys and values are views of `bytes`, not copies. */
export function decodeWatch(bytes: Uint8Array): WatchResponse {
  const reader = new BinaryReader(bytes)
  const response: WatchResponse = { header: noHeader, canceled: false, compact_revision: '0', cancel_reason: '', events: [] }
  eachField(reader, bytes.length, (field) => {
    if (field === 1) response.header = nested(reader, readHeader)
    else if (field === 4) response.canceled = reader.bool()
    else if (field === 5) response.compact_revision = String(reader.int64())
    else if (field === 6) response.cancel_reason = reader.string()
    else if (field === 11) response.events.push(nested(reader, readEvent))
    else return false
    return true
  })
  return response
}

const deleteType = 1

function readEvent(reader: BinaryReader, end: number): EtcdEvent {
  const event = { isDelete: false, kv: emptyKeyValue() }
  eachField(reader, end, (field) => {
    if (field === 1) event.isDelete = reader.int32() === deleteType
    else if (field === 2) event.kv = nested(reader, readKeyValue)
    else return false
    return true
  })
  return event
}
