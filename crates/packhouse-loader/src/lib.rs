//! Source to key to hit, or pack and publish, to mapped payloads
