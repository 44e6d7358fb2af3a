// The exports that other folders may use of src/events. Nothing else of it may be imported.
export {
  createSubscription,
  getSubscription,
  listSubscriptions,
  pauseForObject,
  pauseSubscription,
  pauseWrite,
  showPause,
  readSubscription,
  resumeSubscription,
  rotateSubscriptionSecret,
  subscriptionKind,
  testSubscription,
  updateSubscription,
} from './records/subscriptions.ts'
export { createEventSigner } from './delivery/cloud-event.ts'
export { createEventKeys, type EventKeys } from './delivery/event-keys.ts'
export { Dispatcher, type DispatchObserver } from './delivery/dispatcher.ts'
export { sendEvent } from './delivery/sink-client.ts'
export { listDeliveries, redeliverEvents, replayEvents } from './deliveries.ts'
export { watchEvents } from './watch-events.ts'
export { pullEvents } from './pull-events.ts'
export { capabilitiesFor } from './records/event-types.ts'
export { readSecrets } from './records/webhook-secrets.ts'
export { failedPrefix } from './records/progress.ts'
export { withoutForeignEmail } from './records/event-form.ts'
