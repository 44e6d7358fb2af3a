import type { MethodRow } from '../base/schema/method.ts'

/** `GroupsService.GetGroup`: what metrics and error logs call a method, whichever of its names was used. */
export function callName(method: Pick<MethodRow, 'service' | 'rpc'>): string {
  return `${method.service.slice(method.service.lastIndexOf('.') + 1)}.${method.rpc}`
}
