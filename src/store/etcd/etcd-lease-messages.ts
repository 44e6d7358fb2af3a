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

/** A new lease, or one that is renewed. */
export interface LeaseResponse {
  header: ResponseHeader
  ID: string
  /** In seconds. */
  TTL: string
}

/** The start of a watch. */
export interface WatchCreateRequest {
  readonly key: Buffer
  readonly range_end: Buffer
  readonly start_revision: number
}

/** A change that a watch shows. */
export interface EtcdEvent {
  readonly isDelete: boolean
  readonly kv: KeyValue
}

/** A message of a watch. */
export interface WatchResponse {
  header: ResponseHeader
  canceled: boolean
  compact_revision: string
  cancel_reason: string
  readonly events: EtcdEvent[]
}

/** A token of etcd's own authentication. */
export interface AuthenticateResponse {
  header: ResponseHeader
  token: string
}

/** The bytes of a LeaseGrantRequest. */
export function encodeLeaseGrant({ TTL }: { readonly TTL: number }): Uint8Array {
  const writer = new BinaryWriter()
  writeInt64(writer, 1, TTL)
  return writer.finish()
}

/** The bytes of a LeaseRevokeRequest or LeaseKeepAliveRequest. */
export function encodeLeaseId({ ID }: { readonly ID: string }): Uint8Array {
  const writer = new BinaryWriter()
  writeInt64(writer, 1, ID)
  return writer.finish()
}

/** Reads a LeaseGrantResponse or LeaseKeepAliveResponse. */
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

/** Reads a response of which only the header is used. */
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

/** The bytes of an AuthenticateRequest. */
export function encodeAuthenticate({ name, password }: { readonly name: string; readonly password: string }): Uint8Array {
  const writer = new BinaryWriter()
  writeBytes(writer, 1, Buffer.from(name))
  writeBytes(writer, 2, Buffer.from(password))
  return writer.finish()
}

/** Reads an AuthenticateResponse. */
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

/** The bytes of a WatchRequest that starts a watch. */
export function encodeWatchCreate({ key, range_end, start_revision }: WatchCreateRequest): Uint8Array {
  const writer = new BinaryWriter()
  writeNested(writer, 1, (inner) => {
    writeBytes(inner, 1, key)
    writeBytes(inner, 2, range_end)
    writeInt64(inner, 3, start_revision)
  })
  return writer.finish()
}

/** Reads a WatchResponse. Its keys and values refer to `bytes`. */
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
