(** * Lists as vectors, tables and boxes: the lemmas behind the checker *)

From Coq Require Import ZArith List Bool Lia Arith.
From Redistrib.Checker Require Import Spec Check.
Import ListNotations.
Open Scope Z_scope.
Open Scope lazy_bool_scope.

(** ** Booleans *)

Ltac split_bool :=
  repeat match goal with
  | H : (if ?x then ?y else false) = true |- _ =>
      let H1 := fresh H in destruct x eqn:H1; [| discriminate H]
  | H : (?x && ?y)%bool = true |- _ => apply andb_prop in H; destruct H
  | H : Z.eqb _ _ = true |- _ => apply Z.eqb_eq in H
  | H : Z.leb _ _ = true |- _ => apply Z.leb_le in H
  | H : Z.ltb _ _ = true |- _ => apply Z.ltb_lt in H
  end.

(** ** Pointwise reasoning *)

Lemma point_ext (l m : point) :
  length l = length m -> (forall i, (i < length l)%nat -> nth i l 0 = nth i m 0) -> l = m.
Proof. intros Hl H; apply (nth_ext l m 0 0); auto. Qed.

Lemma length_zip {A B C} (f : A -> B -> C) l m : length l = length m -> length (zip f l m) = length l.
Proof.
  revert m; induction l as [|x l IH]; intros [|y m]; simpl; intros H; try discriminate; auto.
Qed.

Lemma nth_zip (f : Z -> Z -> Z) l m i : (i < length l)%nat -> length l = length m ->
  nth i (zip f l m) 0 = f (nth i l 0) (nth i m 0).
Proof.
  revert m i; induction l as [|x l IH]; intros [|y m] i Hi Hl; simpl in *; try (exfalso; lia).
  destruct i as [|i]; [reflexivity|]. apply IH; lia.
Qed.

Lemma length_plus l m : length l = length m -> length (plus l m) = length l.
Proof. apply length_zip. Qed.
Lemma length_minus l m : length l = length m -> length (minus l m) = length l.
Proof. apply length_zip. Qed.
Lemma length_times l m : length l = length m -> length (times l m) = length l.
Proof. apply length_zip. Qed.
Lemma length_quotient l m : length l = length m -> length (quotient l m) = length l.
Proof. apply length_zip. Qed.
Lemma length_remainder l m : length l = length m -> length (remainder l m) = length l.
Proof. apply length_zip. Qed.
Lemma length_smaller l m : length l = length m -> length (smaller l m) = length l.
Proof. apply length_zip. Qed.
Lemma length_beyond l m : length l = length m -> length (beyond l m) = length l.
Proof. apply length_zip. Qed.
Lemma nth_plus l m i : (i < length l)%nat -> length l = length m -> nth i (plus l m) 0 = nth i l 0 + nth i m 0.
Proof. intros; unfold plus; rewrite nth_zip by assumption; reflexivity. Qed.
Lemma nth_minus l m i : (i < length l)%nat -> length l = length m -> nth i (minus l m) 0 = nth i l 0 - nth i m 0.
Proof. intros; unfold minus; rewrite nth_zip by assumption; reflexivity. Qed.
Lemma nth_times l m i : (i < length l)%nat -> length l = length m -> nth i (times l m) 0 = nth i l 0 * nth i m 0.
Proof. intros; unfold times; rewrite nth_zip by assumption; reflexivity. Qed.
Lemma nth_quotient l m i : (i < length l)%nat -> length l = length m -> nth i (quotient l m) 0 = nth i l 0 / nth i m 0.
Proof. intros; unfold quotient; rewrite nth_zip by assumption; reflexivity. Qed.
Lemma nth_remainder l m i : (i < length l)%nat -> length l = length m -> nth i (remainder l m) 0 = nth i l 0 mod nth i m 0.
Proof. intros; unfold remainder; rewrite nth_zip by assumption; reflexivity. Qed.
Lemma nth_smaller l m i : (i < length l)%nat -> length l = length m -> nth i (smaller l m) 0 = Z.min (nth i l 0) (nth i m 0).
Proof. intros; unfold smaller; rewrite nth_zip by assumption; reflexivity. Qed.
Lemma nth_beyond l m i : (i < length l)%nat -> length l = length m -> nth i (beyond l m) 0 = Z.max 0 (nth i m 0 - nth i l 0).
Proof. intros; unfold beyond; rewrite nth_zip by assumption; reflexivity. Qed.

Lemma all2_iff {A B} (f : A -> B -> bool) l m (x0 : A) (y0 : B) :
  all2 f l m = true <->
  length l = length m /\ forall i, (i < length l)%nat -> f (nth i l x0) (nth i m y0) = true.
Proof.
  revert m; induction l as [|x l IH]; intros [|y m]; simpl; split; try discriminate; try (intros [H _]; discriminate H).
  - intros _; split; [reflexivity|]; intros i Hi; lia.
  - reflexivity.
  - destruct (f x y) eqn:Hf; [|discriminate]. intros H; apply IH in H; destruct H as [Hl H].
    split; [lia|]. intros [|i] Hi; simpl; [exact Hf|]. apply H; lia.
  - intros [Hl H]. rewrite (H 0%nat) by lia. apply IH; split; [lia|].
    intros i Hi; apply (H (S i)); lia.
Qed.

Lemma inside_iff e l :
  inside e l = true <-> length e = length l /\ forall i, (i < length e)%nat -> 0 <= nth i l 0 < nth i e 0.
Proof.
  revert l; induction e as [|x e IH]; intros [|y l]; simpl; split; try discriminate; try (intros [H _]; discriminate H).
  - intros _; split; [reflexivity|]; intros i Hi; lia.
  - reflexivity.
  - intros H; split_bool. apply IH in H0; destruct H0 as [Hl Hi]. split; [lia|].
    intros [|i] Hlt; simpl; [lia|]. apply Hi; lia.
  - intros [Hl H]. apply andb_true_intro; split.
    + specialize (H 0%nat ltac:(lia)); simpl in H.
      apply andb_true_intro; split; [apply Z.leb_le|apply Z.ltb_lt]; lia.
    + apply IH; split; [lia|]. intros i Hi; apply (H (S i)); lia.
Qed.

Lemma same_eq l m : same l m = true <-> l = m.
Proof.
  unfold same; split.
  - intros H; apply (all2_iff _ _ _ 0 0) in H; destruct H as [Hl H].
    apply point_ext; [exact Hl|]. intros i Hi; apply Z.eqb_eq, H, Hi.
  - intros <-; apply (all2_iff _ _ _ 0 0); split; [reflexivity|]; intros; apply Z.eqb_refl.
Qed.

Lemma divides_iff l m : divides l m = true <->
  length l = length m /\ forall i, (i < length l)%nat -> nth i m 0 mod nth i l 0 = 0.
Proof.
  unfold divides; rewrite (all2_iff _ _ _ 0 0); split; intros [Hl H]; (split; [exact Hl|]);
    intros i Hi; specialize (H i Hi); [apply Z.eqb_eq in H | apply Z.eqb_eq]; exact H.
Qed.

(** ** Lists *)

Lemma In_range k d : In d (range k) <-> 0 <= d < k.
Proof.
  unfold range; rewrite in_map_iff; split.
  - intros (x & <- & H); apply in_seq in H; lia.
  - intros H; exists (Z.to_nat d); split; [lia|]; apply in_seq; lia.
Qed.

Lemma mem_In d l : mem d l = true <-> In d l.
Proof.
  unfold mem; rewrite existsb_exists; split.
  - intros (x & H & E); apply Z.eqb_eq in E; subst; exact H.
  - intros H; exists d; split; [exact H|apply Z.eqb_refl].
Qed.

Lemma distinct_NoDup l : distinct l = true -> NoDup l.
Proof.
  induction l as [|x l IH]; simpl; intros H; [constructor|].
  split_bool. constructor; [|auto].
  rewrite <- mem_In; intros E; rewrite E in H0; discriminate.
Qed.

Lemma is_device_iff n d : is_device n d = true <-> 0 <= d < n.
Proof.
  unfold is_device; rewrite andb_true_iff, Z.leb_le, Z.ltb_lt; lia.
Qed.

Lemma In_devices n d : In d (range n) <-> is_device n d = true.
Proof. rewrite In_range, is_device_iff; reflexivity. Qed.

Lemma partition_ok all l : partition all l = true -> NoDup l /\ forall d, In d l <-> In d all.
Proof.
  unfold partition; intros H; split_bool.
  split; [apply distinct_NoDup; assumption|].
  repeat match goal with E : forallb _ _ = true |- _ => rewrite forallb_forall in E end.
  intros d; split; intros Hd; apply mem_In; auto.
Qed.

Lemma is_holder_iff n p d : is_holder n p d = true <-> is_device n d = true /\ has_tile p d = true.
Proof. apply andb_true_iff. Qed.

Lemma In_holders n p d : In d (filter (has_tile p) (range n)) <-> is_holder n p d = true.
Proof. rewrite filter_In, In_devices, is_holder_iff. reflexivity. Qed.

Lemma pairwise_ok {A} (f : A -> A -> bool) l : pairwise f l = true -> ForallOrdPairs (fun x y => f x y = true) l.
Proof.
  induction l as [|x l IH]; simpl; intros H; [constructor|].
  split_bool. constructor; [|auto]. apply Forall_forall. rewrite forallb_forall in H0; exact H0.
Qed.

Lemma lookup_nonneg {A} (l : list A) i x : lookup l i = Some x -> 0 <= i < len l.
Proof.
  unfold len; revert i; induction l as [|y l IH]; simpl; intros i H; [discriminate|].
  destruct (Z.eqb_spec i 0); [lia|]. apply IH in H; lia.
Qed.

Lemma lookup_In {A} (l : list A) i x : lookup l i = Some x -> In x l.
Proof.
  revert i; induction l as [|y l IH]; simpl; intros i H; [discriminate|].
  destruct (i =? 0); [left; congruence|right; eauto].
Qed.

Lemma lookup_app1 {A} (l m : list A) i : 0 <= i < len l -> lookup (l ++ m) i = lookup l i.
Proof.
  unfold len; revert i; induction l as [|y l IH]; intros i H; [simpl in H; lia|].
  simpl app; simpl lookup. cbn [length] in H. destruct (Z.eqb_spec i 0); [reflexivity|]. apply IH; lia.
Qed.

Lemma lookup_app2 {A} (l m : list A) i : 0 <= i -> lookup (l ++ m) (len l + i) = lookup m i.
Proof.
  unfold len; induction l as [|y l IH]; intros Hi; [simpl; f_equal; lia|].
  cbn [app lookup length]. destruct (Z.eqb_spec (Z.of_nat (S (length l)) + i) 0) as [E|_]; [lia|].
  rewrite <- (IH Hi). f_equal; lia.
Qed.

Lemma lookup_map {A B} (f : A -> B) l i : lookup (map f l) i = option_map f (lookup l i).
Proof.
  revert i; induction l as [|y l IH]; simpl; intros i; [reflexivity|].
  destruct (i =? 0); [reflexivity|apply IH].
Qed.

Lemma lookup_range k c : 0 <= c < k -> lookup (range k) c = Some c.
Proof.
  intros H; unfold range; rewrite lookup_map.
  assert (G : forall m s j, (j < m)%nat -> lookup (seq s m) (Z.of_nat j) = Some (s + j)%nat).
  { induction m as [|m IH]; intros s j Hj; [lia|]. simpl. destruct j as [|j].
    - simpl; f_equal; lia.
    - destruct (Z.eqb_spec (Z.of_nat (S j)) 0); [lia|].
      replace (Z.of_nat (S j) - 1) with (Z.of_nat j) by lia. rewrite IH by lia. f_equal; lia. }
  replace c with (Z.of_nat (Z.to_nat c)) at 1 by lia. rewrite G by lia. simpl; f_equal; lia.
Qed.

Lemma lookup_flat_map {A B} (f : A -> list B) L xs c x i :
  (forall y, len (f y) = L) -> 0 <= i < L -> lookup xs c = Some x ->
  lookup (flat_map f xs) (c * L + i) = lookup (f x) i.
Proof.
  intros HL Hi; revert c; induction xs as [|y xs IH]; intros c H; cbn [lookup flat_map] in *; [discriminate|].
  destruct (Z.eqb_spec c 0) as [E|Hc].
  - subst c; injection H as H; subst y. rewrite <- (lookup_app1 (f x) (flat_map f xs) i) by (rewrite HL; lia). f_equal; lia.
  - pose proof (lookup_nonneg _ _ _ H).
    replace (c * L + i) with (len (f y) + ((c - 1) * L + i)) by (rewrite HL; lia).
    rewrite lookup_app2 by nia. apply IH, H.
Qed.

Lemma all2_lookup {A B} (f : A -> B -> bool) l m i y :
  all2 f l m = true -> lookup m i = Some y -> exists x, lookup l i = Some x /\ f x y = true.
Proof.
  revert m i; induction l as [|x l IH]; intros [|z m] i H E; simpl in *; try discriminate.
  destruct (f x z) eqn:Hf; [|discriminate].
  destruct (i =? 0); [injection E as ->; eauto|eauto].
Qed.

(** ** Cells in row-major order *)

Lemma inside_prod e l : inside e l = true -> 0 <= row_major e l < prod e /\ len (cells e) = prod e.
Proof.
  revert l; induction e as [|x e IH]; intros [|y l]; simpl; try discriminate; intros H; [unfold len; simpl; lia|].
  split_bool. destruct (IH _ H0) as [H3 H4]. fold (prod e). split; [nia|].
  assert (G : forall xs, len (flat_map (fun c => map (cons c) (cells e)) xs) = len xs * prod e).
  { unfold len in *; induction xs as [|c xs IHx]; [reflexivity|].
    cbn [flat_map length]. rewrite app_length, map_length, Nat2Z.inj_add, Nat2Z.inj_succ; unfold point in *; rewrite H4, IHx. ring. }
  rewrite G. unfold len, range. rewrite map_length, seq_length. rewrite Z2Nat.id by lia. reflexivity.
Qed.

Lemma lookup_cells e l : inside e l = true -> lookup (cells e) (row_major e l) = Some l.
Proof.
  revert l; induction e as [|x e IH]; intros [|y l] H; simpl in H; try discriminate; [reflexivity|].
  split_bool. pose proof (inside_prod _ _ H0) as [H3 H4].
  change (cells (x :: e)) with (flat_map (fun c => map (cons c) (cells e)) (range x)).
  change (row_major (x :: e) (y :: l)) with (y * prod e + row_major e l).
  rewrite (lookup_flat_map _ (prod e) _ y y).
  - rewrite lookup_map. unfold point in *. rewrite (IH _ H0); reflexivity.
  - intros c. unfold len in *. rewrite map_length; exact H4.
  - exact H3.
  - apply lookup_range; lia.
Qed.

(** ** Boxes *)

Definition in_intervals (b : box) (g : point) : Prop :=
  (length b <= length g)%nat /\
  forall i, (i < length b)%nat -> fst (nth i b (0, 0)) <= nth i g 0 < snd (nth i b (0, 0)).

Lemma length_box_at lo e : length lo = length e -> length (box_at lo e) = length e.
Proof.
  intros H; unfold box_at; rewrite combine_length. unfold plus; rewrite length_zip by exact H. lia.
Qed.

Lemma nth_box_at lo e i : length lo = length e -> (i < length e)%nat ->
  nth i (box_at lo e) (0, 0) = (nth i lo 0, nth i lo 0 + nth i e 0).
Proof.
  intros H Hi; unfold box_at. rewrite combine_nth by (unfold plus; rewrite length_zip; auto).
  unfold plus; rewrite nth_zip by (auto; lia). reflexivity.
Qed.

Lemma in_box_iff lo e g : length lo = length e ->
  (in_box lo e g = true <-> in_intervals (box_at lo e) g).
Proof.
  unfold in_box, in_intervals; revert lo g; induction e as [|x e IH]; intros [|y lo] g Hl; try discriminate.
  - destruct g; simpl; (split; [intros _; split; [lia|intros i Hi; lia]|reflexivity]).
  - destruct g as [|z g].
    + simpl; split; [discriminate|intros [H _]; lia].
    + simpl in Hl. specialize (IH lo g ltac:(lia)). cbn [minus zip inside box_at combine plus].
      fold (minus g lo) (plus lo e). change (combine lo (plus lo e)) with (box_at lo e).
      rewrite !andb_true_iff, Z.leb_le, Z.ltb_lt, IH. cbn [length]. split.
      * intros [H [H1 H2]]; split; [lia|]. intros [|i] Hi; simpl; [lia|]. apply H2; lia.
      * intros [H1 H2]. split; [specialize (H2 0%nat ltac:(lia)); simpl in H2; lia|].
        split; [lia|]. intros i Hi; apply (H2 (S i)); lia.
Qed.

Lemma within_ok b c g : within b c = true -> in_intervals b g -> in_intervals c g.
Proof.
  unfold within; intros H; apply (all2_iff _ _ _ (0, 0) (0, 0)) in H; destruct H as [Hl H].
  intros [Hg Hb]; split; [lia|]. intros i Hi. specialize (H i ltac:(lia)). specialize (Hb i ltac:(lia)).
  split_bool. lia.
Qed.

Lemma apart_ok b c g : apart b c = true -> in_intervals b g -> in_intervals c g -> False.
Proof.
  revert c g; induction b as [|i b IH]; intros [|j c] g H [Lb Hb] [Lc Hc]; simpl in H; try discriminate.
  destruct g as [|z g]; simpl in Lb, Lc; [lia|].
  apply orb_prop in H; destruct H as [H|H]; [apply orb_prop in H; destruct H as [H|H]|].
  1, 2: specialize (Hb 0%nat ltac:(simpl; lia)); specialize (Hc 0%nat ltac:(simpl; lia)); simpl in Hb, Hc;
    split_bool; lia.
  apply (IH c g H); (split; [lia|]); intros k Hk;
    [apply (Hb (S k))|apply (Hc (S k))]; simpl; lia.
Qed.

(** What is in a box is in the part cut away or in one of the pieces left. *)
Lemma cut_ok b c g : length b = length c -> in_intervals b g ->
  in_intervals c g \/ exists x, In x (cut b c) /\ length x = length b /\ in_intervals x g.
Proof.
  revert c g; induction b as [|[l h] b IH]; intros [|[l' h'] c] g E [Lg Hg]; simpl in E; try discriminate.
  - left; split; [simpl; lia|intros i Hi; simpl in Hi; lia].
  - destruct g as [|z g]; simpl in Lg; [lia|].
    assert (Hz : l <= z < h) by (specialize (Hg 0%nat ltac:(simpl; lia)); exact Hg).
    assert (Hr : in_intervals b g).
    { split; [lia|]. intros i Hi; apply (Hg (S i)); simpl; lia. }
    assert (Hcons : forall u w d, length d = length b -> u <= z < w -> in_intervals d g ->
                    in_intervals ((u, w) :: d) (z :: g)).
    { intros u w d Hd Hu [Ld Hi]; split; [simpl; lia|]. intros [|i] Hlt; simpl in *; [lia|apply Hi; lia]. }
    cbn [cut]. destruct (Z.ltb_spec z l') as [H1|H1].
    + right; exists ((l, Z.min h l') :: b). split; [|split; [reflexivity|apply Hcons; auto; lia]].
      apply in_or_app; left. destruct (Z.ltb_spec l l'); [left; reflexivity|lia].
    + destruct (Z.leb_spec h' z) as [H2|H2].
      * right; exists ((Z.max l h', h) :: b). split; [|split; [reflexivity|apply Hcons; auto; lia]].
        apply in_or_app; right; apply in_or_app; left. destruct (Z.ltb_spec h' h); [left; reflexivity|lia].
      * destruct (IH c g ltac:(lia) Hr) as [H|(x & Hx & Lx & Hxg)].
        -- left; apply Hcons; [lia|lia|exact H].
        -- right; exists ((Z.max l l', Z.min h h') :: x).
           split; [|split; [simpl; lia|apply Hcons; auto; lia]].
           apply in_or_app; right; apply in_or_app; right.
           destruct (Z.ltb_spec (Z.max l l') (Z.min h h')); [|lia]. apply in_map; exact Hx.
Qed.

Lemma covered_ok b cs g : covered b cs = true -> (forall c, In c cs -> length c = length b) ->
  in_intervals b g -> exists c, In c cs /\ in_intervals c g.
Proof.
  intros H Hl Hg.
  assert (G : forall cs left, (forall c, In c cs -> length c = length b) ->
    (exists x, In x left /\ length x = length b /\ in_intervals x g) ->
    (exists c, In c cs /\ in_intervals c g) \/
    exists x, In x (fold_left (fun left c => flat_map (fun x => cut x c) left) cs left) /\
              length x = length b /\ in_intervals x g).
  { clear H Hl cs; intros cs; induction cs as [|c r IH]; intros left Hl (x & Hx & Lx & Hxg); simpl.
    - right; eauto.
    - assert (Lc : length x = length c) by (pose proof (Hl c (or_introl eq_refl)); congruence).
      destruct (cut_ok x c g Lc Hxg) as [H|(y & Hy & Ly & Hyg)]; [left; exists c; auto|].
      assert (E : exists x', In x' (flat_map (fun x => cut x c) left) /\ length x' = length b /\ in_intervals x' g).
      { exists y. split; [apply in_flat_map; exists x; auto|]. split; [lia|exact Hyg]. }
      assert (Hr : forall c', In c' r -> length c' = length b) by (intros; apply Hl; right; assumption).
      destruct (IH _ Hr E) as [(c' & Hc & Hcg)|H]; [left; exists c'; auto|right; exact H]. }
  assert (E : exists x, In x [b] /\ length x = length b /\ in_intervals x g) by (exists b; simpl; auto).
  destruct (G cs [b] Hl E) as [H1|(x & Hx & _)]; [exact H1|].
  unfold covered, cut_all in H. destruct (fold_left _ cs [b]); [destruct Hx|discriminate].
Qed.
